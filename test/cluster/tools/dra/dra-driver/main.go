// Command dra-driver is a driver for dynamic resource allocation: it publishes a node's devices, each of which is an environment variable and a
// device file of the containers that use it. Tests run it beside a node.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
)

var (
	name       = flag.String("driver-name", "dra.graftlet.dev", "name of the driver")
	kubeconfig = flag.String("kubeconfig", "", "access to the API server")
	nodeName   = flag.String("node-name", "", "node whose devices are published")
	rootDir    = flag.String("root-dir", "/var/lib/kubelet", "root directory of the kubelet")
	cdiDir     = flag.String("cdi-dir", "/var/run/cdi", "folder of CDI specs that the runtime reads")
	devices    = flag.Int("devices", 2, "number of devices")
	failing    = flag.String("failing", "", "file in whose presence every preparation fails with its content")
	healthFile = flag.String("health", "", "file with the health of all devices: Healthy or Unhealthy, a space, and a message; read every 200 ms")
	callsFile  = flag.String("calls", "", "file to which a line is written for each claim: prepare or unprepare, and the claim's name")
)

type driver struct {
	drahealth.UnimplementedDRAResourceHealthServer
	mutex sync.Mutex
	stop  context.CancelFunc
}

func main() {
	klog.InitFlags(nil)
	flag.Parse()
	if err := run(); err != nil {
		klog.ErrorS(err, "dra-driver")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func run() error {
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, folder := range []string{dataFolder(), *cdiDir} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	helper, err := kubeletplugin.Start(ctx, &driver{stop: stop},
		kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(*nodeName),
		kubeletplugin.DriverName(*name),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(*rootDir, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(dataFolder()),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	var published []resourceapi.Device
	for i := range *devices {
		published = append(published, resourceapi.Device{Name: fmt.Sprintf("dev-%d", i)})
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: published}}}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{*nodeName: pool}}
	if err := helper.PublishResources(ctx, resources); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		d.record("prepare", claim.Name)
		devices, err := prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		d.record("unprepare", claim.Name)
		err := os.Remove(specFile(claim.UID))
		if os.IsNotExist(err) {
			err = nil
		}
		results[claim.UID] = err
	}
	return results, nil
}

// NodeWatchResources reports the health of all devices whenever the file changes, and every ten seconds.
func (d *driver) NodeWatchResources(_ *drahealth.NodeWatchResourcesRequest, stream drahealth.DRAResourceHealth_NodeWatchResourcesServer) error {
	var sent string
	var sentAt time.Time
	for {
		text, err := os.ReadFile(*healthFile)
		if err == nil && (string(text) != sent || time.Since(sentAt) > 10*time.Second) {
			if err := stream.Send(healthOfAll(string(text))); err != nil {
				return err
			}
			sent, sentAt = string(text), time.Now()
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func healthOfAll(text string) *drahealth.NodeWatchResourcesResponse {
	state, message, _ := strings.Cut(text, " ")
	health := drahealth.HealthStatus(drahealth.HealthStatus_value[strings.ToUpper(state)])
	response := &drahealth.NodeWatchResourcesResponse{}
	for i := range *devices {
		id := &drahealth.DeviceIdentifier{PoolName: *nodeName, DeviceName: fmt.Sprintf("dev-%d", i)}
		response.Devices = append(response.Devices, &drahealth.DeviceHealth{Device: id, Health: health, Message: message})
	}
	return response
}

func (d *driver) HandleError(_ context.Context, err error, msg string) {
	klog.ErrorS(err, msg)
	d.stop()
}

// record notes a call for one claim.
func (d *driver) record(call, claim string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	file, err := os.OpenFile(*callsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer file.Close()
	fmt.Fprintln(file, call, claim)
}

// prepare writes the CDI spec of a claim: one device per allocated device of this driver.
func prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	if why, err := os.ReadFile(*failing); err == nil {
		return nil, fmt.Errorf("%s", why)
	}
	kind := *name + "/device"
	var prepared []kubeletplugin.Device
	var specs []map[string]any
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != *name {
			continue
		}
		id := fmt.Sprintf("%s-%s", claim.UID, result.Device)
		mounted := filepath.Join(dataFolder(), result.Device)
		if err := os.WriteFile(mounted, []byte("driver of "+result.Device+"\n"), 0o644); err != nil {
			return nil, err
		}
		specs = append(specs, map[string]any{
			"name": id,
			"containerEdits": map[string]any{
				"env":         []string{fmt.Sprintf("DRA_%s=%s", result.Request, result.Device)},
				"deviceNodes": []map[string]any{{"path": "/dev/dra-" + result.Device, "hostPath": "/dev/null"}},
				"mounts":      []map[string]any{{"containerPath": "/dra/" + result.Device, "hostPath": mounted, "options": []string{"ro", "bind"}}},
			},
		})
		prepared = append(prepared, kubeletplugin.Device{
			Requests:     []string{result.Request},
			PoolName:     result.Pool,
			DeviceName:   result.Device,
			CDIDeviceIDs: []string{kind + "=" + id},
		})
	}
	text, err := json.Marshal(map[string]any{"cdiVersion": "0.5.0", "kind": kind, "devices": specs})
	if err != nil {
		return nil, err
	}
	return prepared, os.WriteFile(specFile(claim.UID), text, 0o644)
}

func dataFolder() string {
	return filepath.Join(*rootDir, "plugins", *name)
}

func specFile(claim types.UID) string {
	return filepath.Join(*cdiDir, fmt.Sprintf("%s-%s.json", *name, claim))
}
