// Command nfs-provisioner makes claims' volumes from folders of /export, which the NFS server that it starts serves: what upstream's tests
// take Kubernetes' own nfs-provisioner for, whose Go module cannot be had.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const exports = "/export"

// The server's configuration; its grace period is in seconds, and none where that is zero.
const configuration = `NFS_CORE_PARAM { MNT_Port = 20048; Enable_NLM = false; Enable_RQUOTA = false; }
NFSv4 { %s UseGetpwnam = true; Only_Numeric_Owners = true; }
EXPORT_DEFAULTS { Access_Type = RW; Squash = No_Root_Squash; SecType = sys; }
EXPORT { Export_Id = 1; Path = ` + exports + `; Pseudo = ` + exports + `; FSAL { Name = VFS; } }
LOG { Default_Log_Level = EVENT; }
`

func main() {
	name := flag.String("provisioner", "", "the provisioner's name in storage classes")
	grace := flag.Uint("grace-period", 90, "seconds in which clients of an earlier server get their locks back")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *name, *grace); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, name string, grace uint) error {
	server := os.Getenv("POD_IP")
	if name == "" || server == "" {
		return errors.New("the flag -provisioner and the variable POD_IP are needed")
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { cancel(serve(ctx, grace)) }()
	provisioner := &provisioner{server: server}
	controller.NewProvisionController(ctx, client, name, provisioner, controller.LeaderElection(false)).Run(ctx)
	return context.Cause(ctx)
}

// serve runs the NFS server until it ends or the context does.
func serve(ctx context.Context, grace uint) error {
	period := "Graceless = true;"
	if grace > 0 {
		period = fmt.Sprintf("Grace_Period = %d;", grace)
	}
	const file = "/etc/ganesha/ganesha.conf"
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, period), 0o644); err != nil {
		return err
	}
	if err := tellMount(); err != nil {
		return err
	}
	if err := command(ctx, "rpcbind", "-w"); err != nil {
		return err
	}
	return command(ctx, "ganesha.nfsd", "-F", "-L", "STDERR", "-f", file)
}

// tellMount shows the server the mount of its folders alone: a container's root has the file system ID of the disk that it is kept on, and
// where that is the folders' disk as well, the server takes one for the other.
func tellMount() error {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Fields(line)[1] == exports {
			return os.WriteFile("/etc/mtab", []byte(line), 0o644)
		}
	}
	return errors.New(exports + " is no mount: the pod needs a volume there")
}

func command(ctx context.Context, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	err := command.Run()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

type provisioner struct{ server string }

// Provision makes a folder that everybody may write to, and the volume that is mounted from it.
func (p *provisioner) Provision(
	_ context.Context, options controller.ProvisionOptions,
) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	folder := filepath.Join(exports, options.PVName)
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	// The umask does not count here.
	if err := os.Chmod(folder, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	claim := options.PVC.Spec
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   claim.AccessModes,
			MountOptions:                  options.StorageClass.MountOptions,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: claim.Resources.Requests[v1.ResourceStorage]},
			PersistentVolumeSource: v1.PersistentVolumeSource{
				NFS: &v1.NFSVolumeSource{Server: p.server, Path: folder},
			},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete removes the folder that a volume was made from.
func (p *provisioner) Delete(_ context.Context, volume *v1.PersistentVolume) error {
	return os.RemoveAll(filepath.Join(exports, volume.Name))
}
