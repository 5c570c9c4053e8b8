// Command csi-node-driver-registrar makes a CSI driver known to the kubelet: it serves the kubelet's plugin registration at
// a socket of the folder that the kubelet watches. Flags and behaviour are those of Kubernetes' own program of that name.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"graftlet.dev/test/cluster/tools/csi/internal/endpoint"
)

const probeMode = "kubelet-registration-probe"

var (
	csiAddress   = flag.String("csi-address", "/run/csi/socket", "socket of the CSI driver")
	kubeletPath  = flag.String("kubelet-registration-path", "", "path of the CSI driver's socket as the kubelet sees it")
	folder       = flag.String("plugin-registration-path", "/registration", "folder that the kubelet watches")
	timeout      = flag.Duration("timeout", time.Second, "limit of a call to the driver")
	httpEndpoint = flag.String("http-endpoint", "", "address that serves /healthz; none when empty")
	mode         = flag.String("mode", "registration", `"registration", or "`+probeMode+`": ends with 0 if the kubelet has asked for the driver`)
)

func main() {
	klog.InitFlags(nil)
	flag.Parse()
	if err := run(); err != nil {
		klog.ErrorS(err, "csi-node-driver-registrar")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func run() error {
	if *kubeletPath == "" {
		return errors.New("kubelet-registration-path is a required parameter")
	}
	if *mode == probeMode {
		_, err := os.Stat(asked())
		return err
	}
	name, err := driverName()
	if err != nil {
		return fmt.Errorf("name of the CSI driver: %w", err)
	}
	return register(name)
}

// driverName asks the driver, once it listens; how long that takes is not limited.
func driverName() (string, error) {
	for !listens(*csiAddress) {
		klog.Warningf("Still connecting to %s", *csiAddress)
		time.Sleep(time.Second)
	}
	connection, err := endpoint.Dial(*csiAddress)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	info, err := csi.NewIdentityClient(connection).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	if err == nil && info.GetName() == "" {
		err = errors.New("the driver has none")
	}
	return info.GetName(), err
}

func listens(socket string) bool {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	connection.Close()
	return true
}

// register serves until a signal ends it, and takes its socket along.
func register(driver string) error {
	socket := filepath.Join(*folder, driver+"-reg.sock")
	mask := syscall.Umask(0o077)
	listener, err := endpoint.Listen(socket)
	syscall.Umask(mask)
	if err != nil {
		return err
	}
	klog.InfoS("Registration Server started", "socketPath", socket)
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &plugin{driver: driver})
	go serveHealth(socket, driver)
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// The listener removes its socket when it is closed.
	go func() { <-ended.Done(); server.Stop() }()
	return server.Serve(listener)
}

// asked is the file that says that the kubelet has asked for the driver: beside the driver's socket.
func asked() string { return filepath.Join(filepath.Dir(*kubeletPath), "registration") }

// plugin is what the kubelet is told.
type plugin struct {
	registration.UnsafeRegistrationServer
	driver string
}

func (p *plugin) GetInfo(_ context.Context, _ *registration.InfoRequest) (*registration.PluginInfo, error) {
	klog.InfoS("Received GetInfo call")
	// It fails where the kubelet's path is not there in this container: only the probe lacks it then.
	if err := os.WriteFile(asked(), nil, 0o644); err != nil {
		klog.ErrorS(err, "Failed to create registration probe file", "registrationProbePath", asked())
	}
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              p.driver,
		Endpoint:          *kubeletPath,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus ends the program where the kubelet refused the driver: the container's restart tries again.
func (p *plugin) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	klog.InfoS("Received NotifyRegistrationStatus call", "registered", status.PluginRegistered, "error", status.Error)
	if !status.PluginRegistered {
		klog.Errorf("Registration process failed with error: %s, restarting registration container.", status.Error)
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// serveHealth says whether the socket is there and answers, so that a liveness probe restarts what lost it.
func serveHealth(socket, driver string) {
	if *httpEndpoint == "" {
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(writer http.ResponseWriter, request *http.Request) {
		if _, err := os.Stat(socket); err != nil {
			http.Error(writer, "registration socket does not exist", http.StatusNotFound)
			return
		}
		if err := answers(request.Context(), socket, driver); err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(writer, "ok")
	})
	klog.ErrorS(http.ListenAndServe(*httpEndpoint, mux), "Health server ended")
	klog.FlushAndExit(klog.ExitFlushTimeout, 1)
}

func answers(ctx context.Context, socket, driver string) error {
	connection, err := endpoint.Dial(socket)
	if err != nil {
		return err
	}
	defer connection.Close()
	limited, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	info, err := registration.NewRegistrationClient(connection).GetInfo(limited, &registration.InfoRequest{})
	if err == nil && info.GetName() != driver {
		return fmt.Errorf("invalid driver name %s", info.GetName())
	}
	return err
}
