// Package endpoint opens the sockets that command lines name: unix:///csi/csi.sock, /csi/csi.sock, tcp://:9000.
package endpoint

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Listen opens a listening socket; of a unix socket, what an earlier process left at its path goes first.
func Listen(name string) (net.Listener, error) {
	network, address := parse(name)
	if network == "unix" {
		if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return net.Listen(network, address)
}

// Dial connects to a gRPC server. Calls wait until it answers, or until their context ends.
func Dial(name string) (*grpc.ClientConn, error) {
	network, address := parse(name)
	return grpc.NewClient(
		"passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// A path is no name of a host.
		grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}),
	)
}

// parse takes a path without a scheme for that of a unix socket.
func parse(name string) (network, address string) {
	if network, address, found := strings.Cut(name, "://"); found {
		return strings.ToLower(network), address
	}
	return "unix", strings.TrimPrefix(name, "unix:")
}
