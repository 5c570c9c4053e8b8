import type { RequestMeasures } from "../api/client.ts";
import type { ServingMeasures } from "../server/ports.ts";
import { type Metrics, defaultBuckets } from "./registry.ts";

/** Creates the metrics of the node's requests to the API server. */
export function requestMetrics(metrics: Metrics): RequestMeasures {
  const answers = metrics.counter(
    "rest_client_requests_total",
    "Requests to the API server, by status code; <error> without a response.",
    ["code", "method", "host"],
  );
  const histogram = {
    labels: ["verb", "host"],
    buckets: [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60],
  } as const;
  const durations = metrics.histogram(
    "rest_client_request_duration_seconds",
    "Latency of requests to the API server, in seconds; for a watch, until it starts.",
    histogram,
  );
  const delays = metrics.histogram(
    "rest_client_rate_limiter_duration_seconds",
    "Time that requests to the API server waited because of kubeAPIQPS and kubeAPIBurst, in seconds.",
    histogram,
  );
  const repetitions = metrics.counter(
    "rest_client_request_retries_total",
    "Retried requests to the API server, by status code; <error> without a response.",
    ["code", "verb", "host"],
  );
  // 64 bytes to 16 MiB.
  const size = {
    labels: ["verb", "host"],
    buckets: [64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216],
  } as const;
  const sent = metrics.histogram(
    "rest_client_request_size_bytes",
    "Size of request bodies sent to the API server, in bytes, except for watches.",
    size,
  );
  const received = metrics.histogram(
    "rest_client_response_size_bytes",
    "Size of response bodies from the API server, in bytes, except for watches.",
    size,
  );
  return {
    answered(code, method, host, ms) {
      answers.add({ code, method, host });
      durations.addMs({ verb: method, host }, ms);
    },
    repeated: (code, method, host) => repetitions.add({ code, verb: method, host }),
    sent: (method, host, bytes) => sent.add({ verb: method, host }, bytes),
    received: (method, host, bytes) => received.add({ verb: method, host }, bytes),
    delayed: (method, host, ms) => delays.addMs({ verb: method, host }, ms),
  };
}

const methods = new Set(["OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"]);
const areas = new Set([
  "attach",
  "checkpoint",
  "configz",
  "containerLogs",
  "debug",
  "exec",
  "flagz",
  "healthz",
  "logs",
  "metrics",
  "metrics/cadvisor",
  "metrics/probes",
  "metrics/resource",
  "pods",
  "portForward",
  "run",
  "runningpods",
  "stats",
  "statusz",
]);
/** The kubelet's label values: it does not classify port-forwards. */
const longRunning = new Set(["attach", "debug", "exec"]);

/** Creates the metrics of requests to the kubelet API. */
export function servingMetrics(metrics: Metrics): ServingMeasures {
  const labels = ["method", "path", "server_type", "long_running"] as const;
  const requests = metrics.counter("kubelet_http_requests_total", "Requests to the kubelet API.", labels);
  const durations = metrics.histogram(
    "kubelet_http_requests_duration_seconds",
    "Duration of requests to the kubelet API, in seconds; for streams, until they end.",
    { labels, buckets: defaultBuckets },
  );
  const webSockets = metrics.counter(
    "kubelet_websocket_streaming_requests_total",
    "Requests for exec, attach and port-forward over WebSocket.",
    ["subresource"],
  );
  const open = new Map<string, { readonly labels: Readonly<Record<(typeof labels)[number], string>>; count: number }>();
  metrics.gauge("kubelet_http_inflight_requests", "Requests to the kubelet API in progress.", {
    labels,
    values: () => [...open.values()].map((each) => [each.labels, each.count]),
  });
  return {
    webSocket: (area) => webSockets.add({ subresource: area.toLowerCase() }),
    began(method, area) {
      const path = areas.has(area) ? area : "other";
      const given = {
        method: methods.has(method) ? method : "other",
        path,
        server_type: "readwrite",
        long_running: String(longRunning.has(path)),
      };
      requests.add(given);
      const key = `${given.method} ${path}`;
      const inFlight = open.get(key) ?? { labels: given, count: 0 };
      open.set(key, inFlight);
      inFlight.count += 1;
      return (ms) => {
        inFlight.count -= 1;
        durations.addMs(given, ms);
      };
    },
  };
}
