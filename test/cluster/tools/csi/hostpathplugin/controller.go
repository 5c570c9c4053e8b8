package main

import (
	"context"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// accessModes are those that a volume of one node can have.
var accessModes = map[csi.VolumeCapability_AccessMode_Mode]bool{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:        true,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:   true,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER: true,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:  true,
	csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:    true,
	csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER:  true,
	csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:   true,
}

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	can := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_VOLUME_CONDITION,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if d.config.attach {
		can = append(can,
			csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
			csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
			csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	}
	if d.config.controllerExpand {
		can = append(can, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME)
	}
	if d.config.modify {
		can = append(can, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	}
	said := []*csi.ControllerServiceCapability{}
	for _, rpc := range can {
		said = append(said, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{
			Rpc: &csi.ControllerServiceCapability_RPC{Type: rpc},
		}})
	}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: said}, nil
}

// isBlock says of which kind of access the capabilities are. They may not be of both.
func isBlock(capabilities []*csi.VolumeCapability) (bool, error) {
	if len(capabilities) == 0 {
		return false, missing("Volume Capabilities")
	}
	var block, mount bool
	for _, capability := range capabilities {
		block = block || capability.GetBlock() != nil
		mount = mount || capability.GetMount() != nil
		if !accessModes[capability.GetAccessMode().GetMode()] {
			return false, status.Errorf(codes.InvalidArgument, "access mode %s is not supported", capability.GetAccessMode().GetMode())
		}
	}
	if block == mount {
		return false, status.Error(codes.InvalidArgument, "capabilities must be of either block or mount access type")
	}
	return block, nil
}

func (d *driver) CreateVolume(_ context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if request.GetName() == "" {
		return nil, missing("Name")
	}
	block, err := isBlock(request.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	if err := d.checkParameters(request.GetMutableParameters()); err != nil {
		return nil, err
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if existing := d.state.volumeByName(request.GetName()); existing != nil {
		if err := fits(existing, block, request); err != nil {
			return nil, err
		}
		return d.created(existing, request), nil
	}
	kind, err := d.kindOf(request.GetParameters())
	if err != nil {
		return nil, err
	}
	made := &volume{Name: request.GetName(), Size: request.GetCapacityRange().GetRequiredBytes(), Block: block, Kind: kind}
	made.Mutable = request.GetMutableParameters()
	made.FromSnapshot = request.GetVolumeContentSource().GetSnapshot().GetSnapshotId()
	made.FromVolume = request.GetVolumeContentSource().GetVolume().GetVolumeId()
	if err := d.create(made); err != nil {
		return nil, err
	}
	return d.created(made, request), nil
}

// fits says whether a volume of the request's name is the one that it asks for.
func fits(existing *volume, block bool, request *csi.CreateVolumeRequest) error {
	asked, limit := request.GetCapacityRange().GetRequiredBytes(), request.GetCapacityRange().GetLimitBytes()
	source := request.GetVolumeContentSource()
	switch {
	case existing.Size < asked || limit > 0 && existing.Size > limit:
		return status.Errorf(codes.AlreadyExists, "Volume with the same name: %s but with different size already exist", request.GetName())
	case existing.Block != block:
		return status.Errorf(codes.AlreadyExists, "Volume with the same name: %s but with different access type already exist", request.GetName())
	case existing.FromSnapshot != source.GetSnapshot().GetSnapshotId() || existing.FromVolume != source.GetVolume().GetVolumeId():
		return status.Errorf(codes.AlreadyExists, "Volume with the same name: %s but from a different source already exist", request.GetName())
	}
	return nil
}

func (d *driver) created(made *volume, request *csi.CreateVolumeRequest) *csi.CreateVolumeResponse {
	said := &csi.Volume{
		VolumeId:      made.ID,
		CapacityBytes: made.Size,
		VolumeContext: request.GetParameters(),
		ContentSource: request.GetVolumeContentSource(),
	}
	if here := d.here(); here != nil {
		said.AccessibleTopology = []*csi.Topology{here}
	}
	return &csi.CreateVolumeResponse{Volume: said}
}

func (d *driver) DeleteVolume(_ context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if request.GetVolumeId() == "" {
		return nil, missing("Volume ID")
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	volume, found := d.state.Volumes[request.GetVolumeId()]
	if !found {
		return &csi.DeleteVolumeResponse{}, nil
	}
	if volume.Attached != "" || len(volume.Staged) > 0 || len(volume.Published) > 0 {
		if err := d.violated("volume '%s' is still used (attached: %q, staged: %v, published: %v)", volume.ID, volume.Attached, volume.Staged, volume.Published); err != nil {
			return nil, err
		}
	}
	return &csi.DeleteVolumeResponse{}, d.remove(volume)
}

func (d *driver) ValidateVolumeCapabilities(_ context.Context, request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if request.GetVolumeId() == "" {
		return nil, missing("Volume ID")
	}
	if len(request.GetVolumeCapabilities()) == 0 {
		return nil, missing("Volume Capabilities")
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	volume, err := d.known(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	block, err := isBlock(request.GetVolumeCapabilities())
	if err != nil || block != volume.Block {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: "the volume does not have these capabilities"}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      request.GetVolumeContext(),
		VolumeCapabilities: request.GetVolumeCapabilities(),
		Parameters:         request.GetParameters(),
	}}, nil
}

func (d *driver) ListVolumes(_ context.Context, request *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	ids := sortedIDs(d.state.Volumes)
	from, to, next, err := page(len(ids), request.GetStartingToken(), request.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	said := &csi.ListVolumesResponse{NextToken: next}
	for _, id := range ids[from:to] {
		volume := d.state.Volumes[id]
		said.Entries = append(said.Entries, &csi.ListVolumesResponse_Entry{
			Volume: d.describe(volume),
			Status: &csi.ListVolumesResponse_VolumeStatus{
				PublishedNodeIds: attachedTo(volume),
				VolumeCondition:  d.condition(volume),
			},
		})
	}
	return said, nil
}

func (d *driver) ControllerGetVolume(_ context.Context, request *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	volume, err := d.known(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: d.describe(volume),
		Status: &csi.ControllerGetVolumeResponse_VolumeStatus{
			PublishedNodeIds: attachedTo(volume),
			VolumeCondition:  d.condition(volume),
		},
	}, nil
}

func (d *driver) describe(volume *volume) *csi.Volume {
	return &csi.Volume{VolumeId: volume.ID, CapacityBytes: volume.Size}
}

func attachedTo(volume *volume) []string {
	if volume.Attached == "" {
		return nil
	}
	return []string{volume.Attached}
}

// page is a part of a list of so many entries; its token is the number of the entry that it begins with.
func page(length int, token string, most int32) (from, to int, next string, err error) {
	if token != "" {
		from, err = strconv.Atoi(token)
		if err != nil || from < 0 || from > length {
			return 0, 0, "", status.Errorf(codes.Aborted, "starting token %q is not one of this list", token)
		}
	}
	to = length
	if most > 0 && from+int(most) < length {
		to = from + int(most)
		next = strconv.Itoa(to)
	}
	return from, to, next, nil
}

func (d *driver) GetCapacity(_ context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	said := &csi.GetCapacityResponse{MinimumVolumeSize: wrapperspb.Int64(0)}
	if wanted, here := request.GetAccessibleTopology().GetSegments()[topologyKey]; here && wanted != d.config.nodeID {
		return said, nil
	}
	kind, err := d.kindOf(request.GetParameters())
	if err != nil {
		// There is no room for a kind that does not exist.
		return said, nil
	}
	said.AvailableCapacity = d.free(kind)
	said.MaximumVolumeSize = wrapperspb.Int64(min(d.config.maxVolumeSize, said.AvailableCapacity))
	return said, nil
}
