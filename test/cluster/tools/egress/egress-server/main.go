// Command egress-server takes tunnels of nodes as k3s and RKE2 do, with the library that they use, and leads connections through
// them: it answers HTTP CONNECT, as an API server asks an egress proxy.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rancher/remotedialer"
)

var (
	listen   = flag.String("listen", "127.0.0.1:6443", "address that takes tunnels")
	path     = flag.String("path", "/v1-k3s/connect", "path that takes tunnels")
	cert     = flag.String("cert", "", "serving certificate")
	key      = flag.String("key", "", "its key")
	clientCA = flag.String("client-ca", "", "CA of the nodes' certificates")
	direct   = flag.Bool("direct", true, "dial itself what no tunnel leads to")
	nodes    = flag.String("nodes", "", "file with a line ADDRESS NAME for each node that is dialled by its address")
	connect  = flag.String("connect", "127.0.0.1:8131", "address that answers CONNECT; unix:PATH for a socket")
)

// A node is known by its certificate.
func authorize(request *http.Request) (string, bool, error) {
	if request.TLS == nil || len(request.TLS.VerifiedChains) == 0 {
		return "", false, nil
	}
	name, isNode := strings.CutPrefix(request.TLS.PeerCertificates[0].Subject.CommonName, "system:node:")
	return name, isNode, nil
}

// The node that has this address, as k3s finds it among the Nodes; else the host is a name itself. Whether addresses are known at all.
func nodeAt(host string) (string, bool) {
	lines, err := os.ReadFile(*nodes)
	for line := range strings.Lines(string(lines)) {
		if address, name, found := strings.Cut(strings.TrimSpace(line), " "); found && address == host {
			return name, true
		}
	}
	return host, err == nil
}

// Leads to the node of that name or address, or, where no addresses are known, to the only one that holds a tunnel; always to its own
// loopback. Without tunnels it dials itself.
func dial(ctx context.Context, server *remotedialer.Server, to string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	clients := server.ListClients()
	node, known := nodeAt(host)
	for _, name := range clients {
		if name == node || (len(clients) == 1 && !known) {
			address := "127.0.0.1:" + port
			if strings.Contains(host, "..") {
				address = strings.TrimPrefix(host, "..") + ":" + port
			}
			return server.Dialer(name)(ctx, "tcp", address)
		}
	}
	if !*direct {
		return nil, errors.New("no tunnel leads there")
	}
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", to)
}

func main() {
	flag.Parse()
	pem, err := os.ReadFile(*clientCA)
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	server := remotedialer.New(authorize, remotedialer.DefaultErrorWriter)
	mux := http.NewServeMux()
	mux.Handle(*path, server)
	go func() {
		tunnels := &http.Server{
			Addr:      *listen,
			Handler:   mux,
			TLSConfig: &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool},
		}
		log.Fatal(tunnels.ListenAndServeTLS(*cert, *key))
	}()
	network, address := "tcp", *connect
	if socket, isUnix := strings.CutPrefix(address, "unix:"); isUnix {
		network, address = "unix", socket
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodConnect {
			_, _ = io.WriteString(answer, strings.Join(server.ListClients(), "\n"))
			return
		}
		there, err := dial(request.Context(), server, request.Host)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadGateway)
			return
		}
		defer there.Close()
		here, buffered, err := answer.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer here.Close()
		_, _ = io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() {
			_, _ = io.Copy(there, buffered)
			there.Close()
		}()
		_, _ = io.Copy(here, there)
	})))
}
