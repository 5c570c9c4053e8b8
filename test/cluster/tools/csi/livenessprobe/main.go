// Command livenessprobe answers /healthz with what a CSI driver answers to Probe. Flags and behaviour are those of
// Kubernetes' own program of that name.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"

	"graftlet.dev/test/cluster/tools/csi/internal/endpoint"
)

var (
	address      = flag.String("csi-address", "/run/csi/socket", "socket of the CSI driver")
	timeout      = flag.Duration("probe-timeout", time.Second, "limit of a probe")
	port         = flag.String("health-port", "9808", "port that serves /healthz")
	httpEndpoint = flag.String("http-endpoint", "", "address that serves /healthz, in the port's place")
)

func main() {
	klog.InitFlags(nil)
	flag.Parse()
	connection, err := endpoint.Dial(*address)
	if err != nil {
		klog.Fatal(err)
	}
	driver := csi.NewIdentityClient(connection)
	http.HandleFunc("/healthz", func(writer http.ResponseWriter, request *http.Request) {
		ctx, cancel := context.WithTimeout(request.Context(), *timeout)
		defer cancel()
		answer, err := driver.Probe(ctx, &csi.ProbeRequest{})
		switch {
		case err != nil:
			klog.ErrorS(err, "Health check failed")
			http.Error(writer, err.Error(), http.StatusInternalServerError)
		case answer.GetReady() != nil && !answer.GetReady().GetValue():
			http.Error(writer, "driver responded but is not ready", http.StatusInternalServerError)
		default:
			fmt.Fprint(writer, "ok")
		}
	})
	served := *httpEndpoint
	if served == "" {
		served = net.JoinHostPort("0.0.0.0", *port)
	}
	klog.Fatal(http.ListenAndServe(served, nil))
}
