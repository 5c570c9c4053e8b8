package main

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"
)

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	can := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_VOLUME_CONDITION,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if d.config.stage {
		can = append(can, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	}
	if d.config.nodeExpand {
		can = append(can, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	if d.config.mountGroup {
		can = append(can, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	}
	said := []*csi.NodeServiceCapability{}
	for _, rpc := range can {
		said = append(said, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{
			Rpc: &csi.NodeServiceCapability_RPC{Type: rpc},
		}})
	}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: said}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	limit := d.config.maxVolumesPerNode
	if d.config.attachLimit > 0 {
		limit = d.config.attachLimit
	}
	return &csi.NodeGetInfoResponse{NodeId: d.config.nodeID, MaxVolumesPerNode: limit, AccessibleTopology: d.here()}, nil
}

func (d *driver) NodeStageVolume(_ context.Context, request *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	switch {
	case !d.config.stage:
		return nil, status.Error(codes.Unimplemented, "NodeStageVolume is not supported")
	case request.GetVolumeId() == "":
		return nil, missing("Volume ID")
	case request.GetStagingTargetPath() == "":
		return nil, missing("Target path")
	case request.GetVolumeCapability() == nil:
		return nil, missing("Volume Capability")
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	volume, err := d.usable(request.GetVolumeId(), request.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	path := request.GetStagingTargetPath()
	if len(volume.Staged) > 0 && !slices.Contains(volume.Staged, path) {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %q is already staged at %v", volume.ID, volume.Staged)
	}
	if volume.Block {
		if _, err := attach(d.state.data(volume.ID)); err != nil {
			return nil, broken("attach a loop device", err)
		}
	} else if err := d.bindFolder(volume, path, request.GetVolumeCapability(), false); err != nil {
		return nil, err
	}
	volume.Staged.add(path)
	return &csi.NodeStageVolumeResponse{}, d.saved()
}

// usable finds a volume, ready to be used in that way.
func (d *driver) usable(id string, capability *csi.VolumeCapability) (*volume, error) {
	volume, err := d.known(id)
	if err != nil {
		return nil, err
	}
	block, err := isBlock([]*csi.VolumeCapability{capability})
	if err != nil {
		return nil, err
	}
	if block != volume.Block {
		return nil, status.Error(codes.InvalidArgument, "the volume has another access type")
	}
	if d.config.attach && volume.Attached == "" && !volume.Ephemeral {
		if err := d.violated("volume %q is not attached", volume.ID); err != nil {
			return nil, err
		}
	}
	return volume, nil
}

func (d *driver) NodeUnstageVolume(_ context.Context, request *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if request.GetVolumeId() == "" {
		return nil, missing("Volume ID")
	}
	if request.GetStagingTargetPath() == "" {
		return nil, missing("Target path")
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	volume, found := d.state.Volumes[request.GetVolumeId()]
	if found && len(volume.Published) > 0 {
		if err := d.violated("volume '%s' is still used at %v", volume.ID, volume.Published); err != nil {
			return nil, err
		}
	}
	// The folder is its maker's.
	if err := unmount(request.GetStagingTargetPath()); err != nil {
		return nil, broken("unmount", err)
	}
	if !found {
		return &csi.NodeUnstageVolumeResponse{}, nil
	}
	volume.Staged.remove(request.GetStagingTargetPath())
	if err := d.detachUnused(volume); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, d.saved()
}

// detachUnused frees the loop device of a block volume, or the file system of one with a label, that nobody uses any more.
func (d *driver) detachUnused(volume *volume) error {
	if len(volume.Staged) > 0 || len(volume.Published) > 0 {
		return nil
	}
	if !volume.Block {
		if err := unmount(d.state.data(volume.ID)); err != nil {
			return broken("unmount", err)
		}
		return nil
	}
	if err := detach(d.state.data(volume.ID)); err != nil {
		return broken("detach the loop device", err)
	}
	return nil
}

// ephemeralKey is in the volume context of an inline volume.
const ephemeralKey = "csi.storage.k8s.io/ephemeral"

func (d *driver) NodePublishVolume(_ context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	capability, target := request.GetVolumeCapability(), request.GetTargetPath()
	switch {
	case capability == nil:
		return nil, missing("Volume capability")
	case request.GetVolumeId() == "":
		return nil, missing("Volume ID")
	case target == "":
		return nil, missing("Target path")
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if request.GetVolumeContext()[ephemeralKey] == "true" || d.config.ephemeral {
		if err := d.createInline(request); err != nil {
			return nil, err
		}
	}
	volume, err := d.usable(request.GetVolumeId(), capability)
	if err != nil {
		return nil, err
	}
	if err := d.mayPublish(volume, request); err != nil {
		return nil, err
	}
	if volume.Block {
		if err := d.bindDevice(volume, target); err != nil {
			return nil, err
		}
	} else if err := d.bindFolder(volume, target, capability, request.GetReadonly()); err != nil {
		return nil, err
	}
	volume.Published.add(target)
	return &csi.NodePublishVolumeResponse{}, d.saved()
}

// createInline makes an inline volume when it is first published.
func (d *driver) createInline(request *csi.NodePublishVolumeRequest) error {
	if request.GetVolumeCapability().GetMount() == nil {
		return status.Error(codes.InvalidArgument, "an inline volume cannot have block access type")
	}
	if _, found := d.state.Volumes[request.GetVolumeId()]; found {
		return nil
	}
	kind, err := d.kindOf(request.GetVolumeContext())
	if err != nil {
		return err
	}
	size := int64(1 << 30)
	if asked := request.GetVolumeContext()["size"]; asked != "" {
		quantity, err := resource.ParseQuantity(asked)
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "size %q: %v", asked, err)
		}
		size = quantity.Value()
	}
	id := request.GetVolumeId()
	return d.create(&volume{ID: id, Name: "ephemeral-" + id, Size: size, Ephemeral: true, Kind: kind})
}

// mayPublish holds the order of calls, and the one writer of a volume that may have but one.
func (d *driver) mayPublish(volume *volume, request *csi.NodePublishVolumeRequest) error {
	if d.config.stage && !volume.Ephemeral {
		staging := request.GetStagingTargetPath()
		switch {
		case len(volume.Staged) == 0:
			return status.Errorf(codes.FailedPrecondition, "volume %q must be staged before publishing", volume.ID)
		case !slices.Contains(volume.Staged, staging):
			return status.Errorf(codes.InvalidArgument, "volume %q was staged at %v, not %q", volume.ID, volume.Staged, staging)
		}
	}
	mode := request.GetVolumeCapability().GetAccessMode().GetMode()
	if mode != csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		return nil
	}
	for _, path := range volume.Published {
		if path != request.GetTargetPath() {
			return status.Errorf(codes.FailedPrecondition, "volume %q with single node single writer access mode is already published at %q", volume.ID, path)
		}
	}
	return nil
}

func (d *driver) NodeUnpublishVolume(_ context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	target := request.GetTargetPath()
	if request.GetVolumeId() == "" {
		return nil, missing("Volume ID")
	}
	if target == "" {
		return nil, missing("Target path")
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if err := removeTarget(target); err != nil {
		return nil, broken("unmount", err)
	}
	// An inline volume is gone when it is asked a second time.
	volume, found := d.state.Volumes[request.GetVolumeId()]
	if !found {
		return &csi.NodeUnpublishVolumeResponse{}, nil
	}
	volume.Published.remove(target)
	if volume.Ephemeral && len(volume.Published) == 0 {
		return &csi.NodeUnpublishVolumeResponse{}, d.remove(volume)
	}
	if err := d.detachUnused(volume); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, d.saved()
}
