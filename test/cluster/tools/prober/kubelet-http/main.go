// Command kubelet-http makes the HTTP probes and lifecycle hooks of a kubelet, with the kubelet's own prober and Go's own client.
// It reads one JSON object per line from standard input, an ask, and answers each with one line.
package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/probe"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
)

const maxAtOnce = 16

type ask struct {
	ID        int               `json:"id"`
	Kind      string            `json:"kind"` // probe or hook
	Action    *v1.HTTPGetAction `json:"action"`
	PodIP     string            `json:"podIP"`
	TimeoutMs int64             `json:"timeoutMs"`
}

type answer struct {
	ID int `json:"id"`
	// For a probe: success, warning or failure; error where the probe itself could not be made. For a hook: success or failure.
	Is     string `json:"is"`
	Output string `json:"output"`
	// The hook was made again over plain HTTP.
	Fallback bool `json:"fallback"`
}

// Like the client that a kubelet gives its lifecycle handler.
var hooks = &http.Client{
	Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	CheckRedirect: httpprobe.RedirectChecker(false),
}

var probes = httpprobe.New(false)

func requestOf(a ask, purpose string) (*http.Request, error) {
	return httpprobe.NewRequestForHTTPGetAction(a.Action, &v1.Container{}, a.PodIP, purpose)
}

func probeOnce(a ask) answer {
	request, err := requestOf(a, "probe")
	if err != nil {
		return answer{ID: a.ID, Is: "error", Output: err.Error()}
	}
	result, output, err := probes.Probe(request, time.Duration(a.TimeoutMs)*time.Millisecond)
	switch {
	case err != nil:
		return answer{ID: a.ID, Is: "error", Output: err.Error()}
	case result == probe.Success:
		return answer{ID: a.ID, Is: "success", Output: output}
	case result == probe.Warning:
		return answer{ID: a.ID, Is: "warning", Output: output}
	}
	return answer{ID: a.ID, Is: "failure", Output: output}
}

func hookOnce(a ask) answer {
	request, err := requestOf(a, "lifecycle")
	if err != nil {
		return answer{ID: a.ID, Is: "failure", Output: err.Error()}
	}
	response, err := hooks.Do(request)
	discard(response)
	fallback := false
	var failed *url.Error
	if errors.As(err, &failed) && strings.Contains(failed.Err.Error(), "server gave HTTP response to HTTPS client") {
		again := request.Clone(request.Context())
		again.URL.Scheme = "http"
		again.Header.Del("Authorization")
		response, plainErr := hooks.Do(again)
		if plainErr == nil {
			err, fallback = nil, true
		}
		discard(response)
	}
	if err != nil {
		return answer{ID: a.ID, Is: "failure", Output: err.Error()}
	}
	return answer{ID: a.ID, Is: "success", Fallback: fallback}
}

func discard(response *http.Response) {
	if response == nil {
		return
	}
	defer response.Body.Close()
	if response.ContentLength <= 10<<10 {
		io.Copy(io.Discard, io.LimitReader(response.Body, 10<<10))
	}
}

func main() {
	log.SetOutput(io.Discard) // Go's client reports servers that say too much
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 4<<20)
	var writing sync.Mutex
	out := json.NewEncoder(os.Stdout)
	places := make(chan struct{}, maxAtOnce)
	for lines.Scan() {
		var a ask
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			log.SetOutput(os.Stderr)
			log.Fatalf("cannot decode an ask: %v", err)
		}
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			act := probeOnce
			if a.Kind == "hook" {
				act = hookOnce
			}
			said := act(a)
			writing.Lock()
			defer writing.Unlock()
			out.Encode(said)
		}()
	}
}
