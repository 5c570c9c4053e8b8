package main

import (
	"context"
	"io"
	"net"

	"k8s.io/klog/v2"

	"graftlet.dev/test/cluster/tools/csi/internal/endpoint"
)

// joinConnections listens at both sockets and joins the connections that are made to them, in pairs. Where the driver runs
// in a process that cannot be dialled, that process connects in advance to the second socket.
func joinConnections(ctx context.Context, served, behind string) error {
	clients, err := endpoint.Listen(served)
	if err != nil {
		return err
	}
	drivers, err := endpoint.Listen(behind)
	if err != nil {
		return err
	}
	klog.InfoS("Joining connections", "endpoint", served, "proxyEndpoint", behind)
	go func() { <-ctx.Done(); clients.Close(); drivers.Close() }()
	for {
		// The kernel takes the drivers' connections before anybody asks for one.
		client, err := clients.Accept()
		if err != nil {
			return unlessEnded(ctx, err)
		}
		driver, err := drivers.Accept()
		if err != nil {
			client.Close()
			return unlessEnded(ctx, err)
		}
		klog.V(3).InfoS("Joined two connections")
		go pass(client, driver)
		go pass(driver, client)
	}
}

func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// pass copies until one side ends, which ends the other.
func pass(from, to net.Conn) {
	defer to.Close()
	count, err := io.Copy(to, from)
	klog.V(5).InfoS("A connection ended", "bytes", count, "err", err)
}
