package main

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) ControllerExpandVolume(_ context.Context, request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if !d.config.controllerExpand {
		return nil, status.Error(codes.Unimplemented, "ControllerExpandVolume is not supported")
	}
	if request.GetVolumeId() == "" {
		return nil, missing("Volume ID")
	}
	if request.GetCapacityRange() == nil {
		return nil, missing("Capacity range")
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	volume, err := d.known(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := d.grow(volume, request.GetCapacityRange().GetRequiredBytes()); err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: volume.Size, NodeExpansionRequired: d.config.nodeExpand}, nil
}

// grow makes a volume larger, never smaller.
func (d *driver) grow(volume *volume, size int64) error {
	if size <= volume.Size {
		return nil
	}
	if err := d.checkSize(size, size-volume.Size, volume.Kind); err != nil {
		return err
	}
	if volume.Block {
		if err := resizeFile(d.state.data(volume.ID), size); err != nil {
			return broken("resize the volume", err)
		}
	}
	volume.Size = size
	return d.saved()
}

func (d *driver) ControllerModifyVolume(_ context.Context, request *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if !d.config.modify {
		return nil, status.Error(codes.Unimplemented, "ControllerModifyVolume is not supported")
	}
	if err := d.checkParameters(request.GetMutableParameters()); err != nil {
		return nil, err
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	volume, err := d.known(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if volume.Mutable == nil {
		volume.Mutable = map[string]string{}
	}
	for name, value := range request.GetMutableParameters() {
		volume.Mutable[name] = value
	}
	return &csi.ControllerModifyVolumeResponse{}, d.saved()
}

// checkParameters refuses parameters that a volume does not have.
func (d *driver) checkParameters(parameters map[string]string) error {
	for name := range parameters {
		if !d.config.acceptsParameter(name) {
			return status.Errorf(codes.InvalidArgument, "parameter %q is not one that a volume has", name)
		}
	}
	return nil
}
