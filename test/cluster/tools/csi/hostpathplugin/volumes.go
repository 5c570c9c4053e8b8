package main

import (
	"errors"
	"os"
	"os/exec"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// defaultSize is that of a block volume of no size, which a device has to have.
const defaultSize = 1 << 20

// create makes a volume's data and keeps the volume. Its ID is made unless it has one.
func (d *driver) create(made *volume) error {
	if made.ID == "" {
		made.ID = uuid.NewString()
	}
	source, least, err := d.source(made)
	if err != nil {
		return err
	}
	made.Size = max(made.Size, least)
	if made.Block {
		made.Size = max(made.Size, defaultSize)
	}
	if err := d.checkSize(made.Size, made.Size, made.Kind); err != nil {
		return err
	}
	data := d.state.data(made.ID)
	if err := fill(data, source, made); err != nil {
		return errors.Join(broken("create the volume", err), os.RemoveAll(data))
	}
	d.state.Volumes[made.ID] = made
	if err := d.saved(); err != nil {
		delete(d.state.Volumes, made.ID)
		return errors.Join(err, os.RemoveAll(data))
	}
	return nil
}

// source is where a new volume's content lies, and the size of what it was; empty for a volume without content.
func (d *driver) source(made *volume) (path string, size int64, err error) {
	var block bool
	switch {
	case made.FromSnapshot != "":
		found, known := d.state.Snapshots[made.FromSnapshot]
		if !known {
			return "", 0, status.Errorf(codes.NotFound, "cannot find snapshot %v", made.FromSnapshot)
		}
		path, size, block = d.state.snapshotData(found.ID), found.Size, found.Block
	case made.FromVolume != "":
		found, known := d.state.Volumes[made.FromVolume]
		if !known {
			return "", 0, status.Errorf(codes.NotFound, "source volume %v does not exist", made.FromVolume)
		}
		path, size, block = d.state.data(found.ID), found.Size, found.Block
	default:
		return "", 0, nil
	}
	if block != made.Block {
		return "", 0, status.Error(codes.InvalidArgument, "the content's source has another access type")
	}
	return path, size, nil
}

// fill makes the folder or file of a volume, with the content of another.
func fill(data, source string, made *volume) error {
	if source != "" {
		if err := copyTree(source, data); err != nil {
			return err
		}
	}
	if made.Block {
		return resizeFile(data, made.Size)
	}
	if source != "" {
		return nil
	}
	if err := os.MkdirAll(data, 0o777); err != nil {
		return err
	}
	// Users other than root write to it, whatever this process' mask is.
	return os.Chmod(data, 0o777)
}

// copyTree copies with owners, modes and holes.
func copyTree(from, to string) error {
	if said, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return errors.New("cp: " + string(said))
	}
	return nil
}

// resizeFile makes the file of a block volume as large as that, which takes no room.
func resizeFile(path string, size int64) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(size), file.Close())
}

// remove ends a volume with its data.
func (d *driver) remove(volume *volume) error {
	data := d.state.data(volume.ID)
	if volume.Block {
		if err := detach(data); err != nil {
			return broken("detach the loop device", err)
		}
	}
	if err := os.RemoveAll(data); err != nil {
		return broken("remove the volume", err)
	}
	delete(d.state.Volumes, volume.ID)
	return d.saved()
}

// condition is abnormal where a volume's data are gone.
func (d *driver) condition(volume *volume) *csi.VolumeCondition {
	if _, err := os.Stat(d.state.data(volume.ID)); err != nil {
		return &csi.VolumeCondition{Abnormal: true, Message: "The source path of the volume doesn't exist"}
	}
	for _, target := range volume.Published {
		if mounted, err := isMounted(target); err != nil || !mounted {
			return &csi.VolumeCondition{Abnormal: true, Message: "The volume isn't mounted"}
		}
	}
	return &csi.VolumeCondition{}
}
