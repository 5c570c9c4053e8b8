package main

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

func (d *driver) ControllerPublishVolume(_ context.Context, request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	switch {
	case !d.config.attach:
		return nil, status.Error(codes.Unimplemented, "ControllerPublishVolume is not supported")
	case request.GetVolumeId() == "":
		return nil, missing("Volume ID")
	case request.GetNodeId() == "":
		return nil, missing("Node ID")
	case request.GetVolumeCapability() == nil:
		return nil, missing("Volume Capability")
	case request.GetNodeId() != d.config.nodeID:
		return nil, status.Errorf(codes.NotFound, "Not matching Node ID %s to hostpath Node ID %s", request.GetNodeId(), d.config.nodeID)
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	volume, err := d.known(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if volume.Attached != "" {
		if volume.AttachedReadonly != request.GetReadonly() {
			return nil, status.Error(codes.AlreadyExists, "Volume published but has different readonly flag")
		}
		return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{}}, nil
	}
	if limit := d.config.attachLimit; limit > 0 && d.attached() >= limit {
		return nil, status.Errorf(codes.ResourceExhausted, "Cannot attach any more volumes to this node (limit = %d)", limit)
	}
	volume.Attached, volume.AttachedReadonly = request.GetNodeId(), request.GetReadonly()
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{}}, d.saved()
}

func (d *driver) attached() int64 {
	count := int64(0)
	for _, volume := range d.state.Volumes {
		if volume.Attached != "" {
			count++
		}
	}
	return count
}

func (d *driver) ControllerUnpublishVolume(_ context.Context, request *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if !d.config.attach {
		return nil, status.Error(codes.Unimplemented, "ControllerUnpublishVolume is not supported")
	}
	if request.GetVolumeId() == "" {
		return nil, missing("Volume ID")
	}
	// An empty node means all nodes.
	if node := request.GetNodeId(); node != "" && node != d.config.nodeID {
		return nil, status.Errorf(codes.NotFound, "Node ID %s does not match to expected Node ID %s", node, d.config.nodeID)
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	volume, found := d.state.Volumes[request.GetVolumeId()]
	if !found || volume.Attached == "" {
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	}
	if len(volume.Staged) > 0 || len(volume.Published) > 0 {
		if err := d.violated("volume '%s' is still used (staged: %v, published: %v)", volume.ID, volume.Staged, volume.Published); err != nil {
			return nil, err
		}
	}
	volume.Attached, volume.AttachedReadonly = "", false
	return &csi.ControllerUnpublishVolumeResponse{}, d.saved()
}

// violated is an error where violations of a volume's life are refused, and a warning elsewhere.
func (d *driver) violated(format string, what ...any) error {
	err := status.Errorf(codes.Internal, format, what...)
	if d.config.checkLifecycle {
		return err
	}
	klog.Warning(err)
	return nil
}
