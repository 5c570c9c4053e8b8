package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) NodeGetVolumeStats(_ context.Context, request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	volume, err := d.at(request.GetVolumeId(), request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	said := &csi.NodeGetVolumeStatsResponse{VolumeCondition: d.condition(volume)}
	if volume.Block {
		said.Usage = []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: volume.Size}}
		return said, nil
	}
	var stats unix.Statfs_t
	if err := unix.Statfs(request.GetVolumePath(), &stats); err != nil {
		return nil, broken("statfs", err)
	}
	said.Usage = []*csi.VolumeUsage{
		{
			Unit:      csi.VolumeUsage_BYTES,
			Total:     int64(stats.Blocks) * stats.Bsize,
			Available: int64(stats.Bavail) * stats.Bsize,
			Used:      int64(stats.Blocks-stats.Bfree) * stats.Bsize,
		},
		{
			Unit:      csi.VolumeUsage_INODES,
			Total:     int64(stats.Files),
			Available: int64(stats.Ffree),
			Used:      int64(stats.Files - stats.Ffree),
		},
	}
	return said, nil
}

// at finds the volume that is at a path of this node.
func (d *driver) at(id, path string) (*volume, error) {
	if id == "" {
		return nil, missing("Volume ID")
	}
	if path == "" {
		return nil, missing("Volume Path")
	}
	volume, err := d.known(id)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, status.Errorf(codes.NotFound, "Could not get file information from %s: %v", path, err)
	}
	return volume, nil
}

func (d *driver) NodeExpandVolume(_ context.Context, request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if !d.config.nodeExpand {
		return nil, status.Error(codes.Unimplemented, "NodeExpandVolume is not supported")
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	volume, err := d.at(request.GetVolumeId(), request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if err := d.grow(volume, request.GetCapacityRange().GetRequiredBytes()); err != nil {
		return nil, err
	}
	if volume.Block {
		if err := refresh(d.state.data(volume.ID)); err != nil {
			return nil, broken("tell the loop device its size", err)
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: volume.Size}, nil
}

// bindFolder mounts a volume's folder at a path, which is made where it is not there.
func (d *driver) bindFolder(volume *volume, target string, capability *csi.VolumeCapability, readonly bool) error {
	label, names := labelOf(capability.GetMount().GetMountFlags())
	flags, err := mountFlags(names)
	if err != nil {
		return err
	}
	if readonly {
		flags |= unix.MS_RDONLY
	}
	data := d.state.data(volume.ID)
	if label != "" {
		if err := mountLabelled(data, label); err != nil {
			return broken("mount with a label", err)
		}
	}
	if group := capability.GetMount().GetVolumeMountGroup(); d.config.mountGroup && group != "" {
		if err := giveToGroup(data, group); err != nil {
			return broken("give the volume to the group", err)
		}
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return broken("make the target", err)
	}
	if err := bind(data, target, flags); err != nil {
		return broken("mount", err)
	}
	return nil
}

// bindDevice mounts a block volume's loop device at a path, where an empty file is made for it.
func (d *driver) bindDevice(volume *volume, target string) error {
	device, err := attach(d.state.data(volume.ID))
	if err != nil {
		return broken("attach a loop device", err)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return broken("make the target", err)
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return broken("make the target", err)
	}
	if err := file.Close(); err != nil {
		return broken("make the target", err)
	}
	if err := bind(device, target, 0); err != nil {
		return broken("mount", err)
	}
	return nil
}

// giveToGroup makes all of a folder readable and writable for a group, as an fsGroup is applied.
func giveToGroup(folder, group string) error {
	id, err := strconv.Atoi(group)
	if err != nil {
		return err
	}
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			return os.Lchown(path, -1, id)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode() | 0o660
		if entry.IsDir() {
			mode |= fs.ModeSetgid | 0o110
		}
		return errors.Join(os.Lchown(path, -1, id), os.Chmod(path, mode))
	})
}
