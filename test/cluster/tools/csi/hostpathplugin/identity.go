package main

import (
	"context"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const version = "graftlet-test"

// driver is all three services. Calls are served one at a time.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	config config
	lock   sync.Mutex
	state  *state
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	if d.config.driverName == "" {
		return nil, status.Error(codes.Unavailable, "Driver name not configured")
	}
	return &csi.GetPluginInfoResponse{Name: d.config.driverName, VendorVersion: version}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE}
	if d.config.topology {
		services = append(services, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	said := []*csi.PluginCapability{}
	for _, service := range services {
		said = append(said, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: service},
		}})
	}
	if d.config.controllerExpand || d.config.nodeExpand {
		said = append(said, &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{
			VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE},
		}})
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: said}, nil
}

// topologyKey names the label of a node that says which node it is.
const topologyKey = "topology.hostpath.csi/node"

// here is the topology of what this node alone can reach; none where that is off.
func (d *driver) here() *csi.Topology {
	if !d.config.topology {
		return nil
	}
	return &csi.Topology{Segments: map[string]string{topologyKey: d.config.nodeID}}
}

func missing(what string) error {
	return status.Errorf(codes.InvalidArgument, "%s missing in request", what)
}

// known finds a volume.
func (d *driver) known(id string) (*volume, error) {
	if id == "" {
		return nil, missing("Volume ID")
	}
	volume, found := d.state.Volumes[id]
	if !found {
		return nil, status.Errorf(codes.NotFound, "volume id %s does not exist in the volumes list", id)
	}
	return volume, nil
}

// broken says what failed on the driver's side.
func broken(what string, err error) error {
	return status.Errorf(codes.Internal, "%s: %v", what, err)
}

// saved keeps the state. A call whose outcome is not kept fails.
func (d *driver) saved() error {
	if err := d.state.save(); err != nil {
		return broken("keep the state", err)
	}
	return nil
}
