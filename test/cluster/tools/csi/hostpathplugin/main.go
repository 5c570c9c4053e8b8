// Command hostpathplugin is a CSI driver for one node: a volume is a folder, or for block volumes a file behind a loop device,
// below --statedir. It takes the flags that the manifests of Kubernetes' tests give to csi-driver-host-path.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"graftlet.dev/test/cluster/tools/csi/internal/endpoint"
)

// config is what the command line says.
type config struct {
	endpoint, proxyEndpoint, driverName, nodeID, stateDir string

	capacity           capacities
	maxVolumesPerNode  int64
	attachLimit        int64
	maxVolumeSize      int64
	mutableParameters  string
	ephemeral          bool
	attach             bool
	topology           bool
	stage              bool
	mountGroup         bool
	controllerExpand   bool
	nodeExpand         bool
	modify             bool
	checkLifecycle     bool
	noControllerExpand bool
	noNodeExpand       bool
}

func (c *config) define(flags *flag.FlagSet) {
	flags.StringVar(&c.endpoint, "endpoint", "unix:///tmp/csi.sock", "socket that serves CSI")
	flags.StringVar(&c.proxyEndpoint, "proxy-endpoint", "", "no driver runs: each connection to --endpoint is joined to one that somebody makes to this socket")
	flags.StringVar(&c.driverName, "drivername", "hostpath.csi.k8s.io", "name of the driver")
	flags.StringVar(&c.nodeID, "nodeid", "", "name of the node, as the driver knows it")
	flags.StringVar(&c.stateDir, "statedir", "/csi-data-dir", "folder of volumes, snapshots and what is known of them")
	flags.Var(&c.capacity, "capacity", "KIND=QUANTITY: so much room there is for volumes whose class has that `kind`; once for each")
	flags.Int64Var(&c.maxVolumesPerNode, "maxvolumespernode", 0, "volumes that the node may have; 0 for no limit")
	flags.Int64Var(&c.attachLimit, "attach-limit", 0, "volumes that may be attached at a time; 0 for no limit")
	flags.Int64Var(&c.maxVolumeSize, "max-volume-size", 1<<40, "largest volume, in bytes")
	flags.BoolVar(&c.ephemeral, "ephemeral", false, "all volumes are inline")
	flags.BoolVar(&c.attach, "enable-attach", false, "volumes have to be attached")
	flags.BoolVar(&c.topology, "enable-topology", true, "volumes say which node can reach them")
	flags.BoolVar(&c.stage, "enable-stage", true, "volumes have to be staged")
	flags.BoolVar(&c.mountGroup, "enable-volume-mount-group", false, "the driver makes volumes writable for a pod's fsGroup")
	flags.BoolVar(&c.nodeExpand, "enable-volume-expansion", true, "volumes can grow")
	flags.BoolVar(&c.nodeExpand, "node-expand-required", true, "as --enable-volume-expansion")
	flags.BoolVar(&c.noControllerExpand, "disable-controller-expansion", false, "volumes grow on the node alone")
	flags.BoolVar(&c.noNodeExpand, "disable-node-expansion", false, "volumes grow without the node")
	flags.BoolVar(&c.modify, "enable-controller-modify-volume", false, "volumes have parameters that change")
	flags.StringVar(&c.mutableParameters, "accepted-mutable-parameter-names", "", "names of those, with commas; any when empty")
	flags.BoolVar(&c.checkLifecycle, "check-volume-lifecycle", false, "refuses what violates a volume's life, instead of a warning")
}

func main() {
	klog.InitFlags(nil)
	var c config
	c.define(flag.CommandLine)
	flag.Parse()
	c.controllerExpand = c.nodeExpand && !c.noControllerExpand
	c.nodeExpand = c.nodeExpand && !c.noNodeExpand
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var err error
	if c.proxyEndpoint != "" {
		err = joinConnections(ctx, c.endpoint, c.proxyEndpoint)
	} else {
		err = serve(ctx, c)
	}
	if err != nil {
		klog.ErrorS(err, "hostpathplugin")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

// serve runs the driver until the context ends.
func serve(ctx context.Context, c config) error {
	if c.nodeID == "" {
		return errors.New("no node id provided")
	}
	if err := os.MkdirAll(c.stateDir, 0o750); err != nil {
		return err
	}
	held, err := openState(c.stateDir)
	if err != nil {
		return err
	}
	listener, err := endpoint.Listen(c.endpoint)
	if err != nil {
		return err
	}
	driver := &driver{config: c, state: held}
	server := grpc.NewServer(grpc.UnaryInterceptor(logCall))
	csi.RegisterIdentityServer(server, driver)
	csi.RegisterControllerServer(server, driver)
	csi.RegisterNodeServer(server, driver)
	klog.InfoS("Listening for connections", "address", listener.Addr(), "driver", c.driverName)
	go func() { <-ctx.Done(); server.GracefulStop() }()
	return server.Serve(listener)
}

func (c *config) acceptsParameter(name string) bool {
	if c.mutableParameters == "" {
		return true
	}
	for accepted := range strings.SplitSeq(c.mutableParameters, ",") {
		if strings.TrimSpace(accepted) == name {
			return true
		}
	}
	return false
}
