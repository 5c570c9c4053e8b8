import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Metadata } from "@grpc/grpc-js";
import type { Node } from "../../src/objects.ts";
import { type Agent, nodeReady, startGraftlet } from "../harness/agent.ts";
import { certificatesIn } from "../harness/certificates.ts";
import { forwardedPort, look, rowsIn, textOf } from "../harness/browser.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { startCriProxy } from "../harness/cri-proxy.ts";
import { askKubelet } from "../harness/kubelet-api.ts";
import { type Collector, type SentSpan, startCollector } from "../harness/otlp.ts";
import { kubectlArgv } from "../harness/kubectl.ts";
import { particulars } from "../harness/particulars.ts";
import { must } from "../harness/processes.ts";
import { openPods, type Pods, shell, statusOf } from "../harness/pods.ts";
import type { RuntimeProxy } from "../harness/runtime-proxy.ts";
import { boundsOf, type Family, parseExposition } from "../unit/metrics/exposition.ts";

/** What both agents say of themselves while the same pods run. */
interface Said {
  readonly node: Map<string, Family>;
  readonly probes: Map<string, Family>;
}

// The real kubelet runs the node first, where its runtime is one that kubelets have: its names, types, labels and buckets are
// those that graftlet's are held to.
const pagePort = 4194;

describe("metrics, traces and profiles of a node", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let pods: Pods;
  let agent: Agent;
  let kubelet: Said | undefined;
  let graftlet: Said;
  let collector: Collector;
  let proxy: RuntimeProxy | undefined;
  /** How many spans are the real kubelet's: the first. */
  let ofKubelet = 0;
  /** CRI's method by the `traceparent` with which it was called. */
  const heard = new Map<string, string>();

  const proxied = (path: string) =>
    cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/${path}`]);
  const scrape = async (): Promise<Said> => ({
    node: parseExposition(await proxied("metrics")),
    probes: parseExposition(await proxied("metrics/probes")),
  });
  const probed = (said: Said) =>
    ["Readiness", "Liveness"].every((kind) =>
      said.probes.get("prober_probe_total")?.samples.some(({ labels }) => labels["probe_type"] === kind),
    );
  /** All that has series only once something happened. */
  const scrapeWhenProbed = () =>
    cluster.waitFor("both probes to be counted", async () => {
      const said = await scrape();
      return probed(said) && said;
    });
  const value = (name: string, labels: Readonly<Record<string, string>> = {}, said = graftlet.node) => {
    const base = name.replace(/_(bucket|sum|count)$/, "");
    const samples = said.get(name)?.samples ?? said.get(base)?.samples ?? assert.fail(`there is no ${name}`);
    return samples.find(
      (sample) => sample.name === name && Object.entries(labels).every(([key, text]) => sample.labels[key] === text),
    )?.value;
  };

  const runPods = async () => {
    const probe = { exec: { command: ["true"] }, periodSeconds: 1, timeoutSeconds: 20 };
    await pods.create("probed", {
      volumes: [
        { name: "scratch", emptyDir: {} },
        { name: "root", configMap: { name: "kube-root-ca.crt" } },
      ],
      containers: [
        {
          imagePullPolicy: "Always",
          readinessProbe: probe,
          livenessProbe: probe,
          volumeMounts: ["root", "scratch"].map((name) => ({ name, mountPath: `/${name}` })),
        },
      ],
    });
    await pods.create("task", {
      restartPolicy: "Never",
      initContainers: [shell("true")],
      containers: [shell("sleep 2; exit 3")],
    });
    await pods.create("broken", { containers: [{ image: "registry.k8s.io/e2e-test-images/not-there:1" }] });
    await pods.create("refused", { nodeSelector: { no: "such-node" }, nodeName: cluster.nodeName });
    await pods.ready("probed");
    await pods.until("broken", "to fail", (pod) => statusOf(pod)?.state?.waiting?.reason === "ErrImagePull");
    await pods.until("task", "to have failed", ({ status }) => status?.phase === "Failed");
    await pods.until("refused", "to be refused", ({ status }) => status?.phase === "Failed");
  };

  /** A valid token, twice, and an invalid one. None may do anything. */
  const callWithTokens = async () => {
    const token = (await cluster.mustKubectl(["create", "token", "default"])).trim();
    for (const [caller, status] of [
      [{ token }, 403],
      [{ token }, 403],
      [{ token: "forged" }, 401],
    ] as const)
      assert.equal((await askKubelet(cluster, "/pods", caller)).status, status);
  };

  before(async () => {
    cluster = await startCluster({ name: "metrics" });
    pods = await openPods(cluster);
    const { startReference } = particulars[cluster.provider];
    collector = await startCollector(`unix://${join(cluster.layout.dir, "collector.sock")}`);
    const config = { tracing: { endpoint: collector.endpoint, samplingRatePerMillion: 1_000_000 } };
    if (cluster.provider === "cri") {
      await using reference = await startReference(cluster, { config });
      await runPods();
      await callWithTokens();
      kubelet = await scrapeWhenProbed();
      await cluster.mustKubectl(["delete", "pods", "--all", "--grace-period=1", "--timeout=60s"]);
      assert.equal(await reference.stop(), true);
    }
    ofKubelet = collector.spans.length;
    if (cluster.provider === "cri") {
      const sockets = { socket: join(cluster.layout.dir, "proxy.sock"), upstream: cluster.runtimeSocket };
      const hear = (method: string, metadata: Metadata) =>
        void heard.set(String(metadata.get("traceparent")[0]), method);
      proxy = await startCriProxy(sockets, hear);
    }
    agent = await startGraftlet(cluster, {
      config,
      args: [`--page-port=${pagePort}`],
      ...(proxy && { runtimeSocket: proxy.socket }),
    });
    await cluster.waitFor("graftlet to have its node", () => agent.log().includes("node is registered"));
    await nodeReady(cluster, cluster.nodeName);
    await runPods();
    await callWithTokens();
    graftlet = await scrapeWhenProbed();
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await proxy?.[Symbol.asyncDispose]();
    await collector?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("metrics match the kubelet's in type, labels and buckets, and add only graftlet's own", (t) => {
    if (!kubelet) return t.diagnostic("this runtime has no kubelet to compare with");
    const own = ["graftlet_build_info", "graftlet_link_losses_total", "nodejs_active_resources_total"];
    const memory = ["nodejs_external_memory_bytes", "nodejs_heap_size_total_bytes", "nodejs_heap_size_used_bytes"];
    // A kubelet shows some only with other settings, or once it has happened.
    const elsewhere = [
      "kubelet_certificate_manager_client_ttl_seconds",
      "kubelet_certificate_manager_server_ttl_seconds",
      "kubelet_certificate_manager_client_expiration_renew_errors",
      "kubelet_certificate_manager_server_rotation_seconds",
      "kubelet_server_expiration_renew_errors",
    ];
    // A kubelet does not show this metric if its server sets the value before the metric is registered.
    const mayBeLost = "kubelet_metrics_provider";
    for (const part of ["node", "probes"] as const) {
      for (const [name, family] of graftlet[part]) {
        if ([...own, ...memory, ...elsewhere].includes(name)) continue;
        const other = kubelet[part].get(name);
        if (!other && (family.samples.length === 0 || name === mayBeLost)) continue;
        assert.ok(other, `a kubelet has no ${name}`);
        assert.equal(family.type, other.type, name);
        if (name !== "kubernetes_build_info" && family.samples.length > 0)
          assert.deepEqual(labelsOf(family), labelsOf(other), name);
        if (family.type === "histogram" && family.samples.length > 0)
          assert.deepEqual(boundsOf(family), boundsOf(other), name);
      }
    }
  });

  test("metrics count the pods that have run", () => {
    assert.equal(value("kubelet_node_name", { node: cluster.nodeName }), 1);
    assert.equal(value("kubelet_running_pods"), 2);
    assert.equal(value("kubelet_running_containers", { container_state: "running" }), 1);
    assert.equal(value("kubelet_desired_pods", { static: "" }), 4);
    assert.equal(value("kubelet_working_pods", { lifecycle: "sync", config: "desired", static: "" }), 2);
    assert.equal(value("kubelet_started_pods_total"), 3);
    assert.equal(value("kubelet_started_pods_errors_total"), 0);
    assert.ok((value("kubelet_started_containers_total", { container_type: "container" }) ?? 0) >= 3);
    const unpulled = { container_type: "container", code: "ErrImagePull" };
    assert.ok((value("kubelet_started_containers_errors_total", unpulled) ?? 0) >= 1);
    assert.ok((value("kubelet_runtime_operations_errors_total", { operation_type: "pull_image" }) ?? 0) >= 1);
    assert.equal(value("kubelet_started_containers_total", { container_type: "init_container" }), 1);
    const ended = { container_type: "container", exit_code: "3", reason: "Error" };
    assert.equal(value("kubelet_terminated_containers_total", ended), 1);
    assert.equal(value("kubelet_admission_rejections_total", {}), 1);
    // Three first statuses, and two that are Running then.
    assert.equal(value("kubelet_pod_start_duration_seconds_count"), 5);
    assert.equal(value("kubelet_pod_start_total_duration_seconds_count"), 2);
    assert.equal(value("kubelet_pod_worker_start_duration_seconds_count"), 3);
    assert.equal(value("kubelet_run_podsandbox_duration_seconds_count", { runtime_handler: "" }), 3);
    assert.equal(value("kubelet_runtime_operations_total", { operation_type: "run_podsandbox" }), 3);
    assert.equal(value("kubelet_runtime_operations_total", { operation_type: "start_container" }), 3);
    const mount = { volume_plugin: "kubernetes.io/configmap", operation_name: "volume_mount", status: "success" };
    assert.ok((value("storage_operation_duration_seconds_count", mount) ?? 0) >= 1);
    const emptyDir = { plugin_name: "kubernetes.io/empty-dir", state: "actual_state_of_world" };
    assert.equal(value("volume_manager_total_volumes", emptyDir), 1);
    assert.ok((value("kubelet_cgroup_manager_duration_seconds_count", { operation_type: "create" }) ?? 0) >= 3);
    assert.equal(value("kubernetes_feature_enabled", { name: "RotateKubeletServerCertificate" }), 1);
    const patches = value("rest_client_requests_total", { method: "PATCH", code: "200" }) ?? 0;
    assert.ok(patches > 3, `${patches} patches`);
    assert.ok((value("rest_client_rate_limiter_duration_seconds_count", { verb: "PATCH" }) ?? 0) > 3);
    assert.ok((value("rest_client_request_size_bytes_sum", { verb: "PATCH" }) ?? 0) > 100);
    assert.equal(value("rest_client_request_size_bytes_sum", { verb: "GET" }), 0);
    assert.ok((value("rest_client_response_size_bytes_sum", { verb: "GET" }) ?? 0) > 1000);
    assert.ok((value("kubelet_image_pull_duration_seconds_count") ?? 0) >= 1);
    assert.ok((value("kubelet_pod_status_sync_duration_seconds_count") ?? 0) > 3);
    assert.ok((value("kubelet_evented_pleg_connection_latency_seconds_count") ?? 0) > 3);
    assert.equal(value("kubelet_metrics_provider", { provider: "cri" }), 1);
    assert.ok((value("kubelet_certificate_manager_server_ttl_seconds") ?? 0) > 3600);
    assert.ok((value("process_resident_memory_bytes") ?? 0) > 30 * 2 ** 20);
    const readiness = { probe_type: "Readiness", container: "main", pod: "probed", result: "successful" };
    assert.ok((value("prober_probe_total", readiness, graftlet.probes) ?? 0) > 0);
  });

  test("metrics count access reviews and token reviews", () => {
    assert.equal(value("apiserver_delegated_authn_request_total", { code: "201" }), 2);
    assert.equal(value("apiserver_delegated_authn_request_duration_seconds_count", { code: "201" }), 2);
    assert.ok((value("apiserver_delegated_authz_request_total", { code: "201" }) ?? 0) >= 2);
    assert.ok((value("apiserver_delegated_authz_request_duration_seconds_count", { code: "201" }) ?? 0) >= 2);
    for (const [status, count] of [
      ["hit", 1],
      ["miss", 2],
    ] as const) {
      assert.equal(value("authentication_token_cache_request_total", { status }), count);
      assert.equal(value("authentication_token_cache_request_duration_seconds_count", { status }), count);
    }
    for (const said of kubelet ? [graftlet, kubelet] : [graftlet]) {
      for (const status of ["ok", "error"])
        assert.equal(value("authentication_token_cache_fetch_total", { status }, said.node), 1);
      for (const status of ["in_flight", "blocked"])
        assert.equal(value("authentication_token_cache_active_fetch_count", { status }, said.node), 0);
    }
  });

  test("metrics are served directly to callers with nodes/metrics, compressed if they accept it", async () => {
    const certificate = certificatesIn(cluster.layout.pki).apiServerKubeletClient;
    const { status, body } = await askKubelet(cluster, "/metrics", { certificate });
    assert.equal(status, 200);
    assert.ok(parseExposition(body).has("kubelet_running_pods"));
    const node = await cluster.get<Node>("node", cluster.nodeName);
    const port = node?.status?.daemonEndpoints?.kubeletEndpoint?.Port;
    const { stdout } = await cluster.runAtAgent([
      "curl",
      "--silent",
      "--insecure",
      "--compressed",
      "--cert",
      certificate.cert,
      "--key",
      certificate.key,
      "--write-out",
      "\n%header{content-type} %header{content-encoding}",
      `https://${cluster.agentAddress}:${port}/metrics`,
    ]);
    const end = stdout.lastIndexOf("\n");
    const [said, headers] = [stdout.slice(0, end), stdout.slice(end + 1)];
    assert.equal(headers, "text/plain; version=0.0.4; charset=utf-8 gzip");
    assert.ok(parseExposition(said).has("kubelet_http_requests_total"));
    assert.equal((await askKubelet(cluster, "/metrics", {})).status, 401);
  });

  test("traces match the kubelet's: runtime calls within a pod's sync, and requests within a caller's trace", async () => {
    const apiRequests = [
      { name: "HTTP PATCH", path: /\/pods\/[^/]+\/status/ },
      { name: "HTTP POST", path: /\/namespaces\/default\/events/ },
    ];
    const asked = (spans: readonly SentSpan[], { name, path }: { readonly name: string; readonly path: RegExp }) =>
      spans.find((span) => span.name === name && path.test(span.attributes["url.full"] ?? ""));
    /** All that two agents' requests to one API server have in common: only their URLs differ. */
    const sharedValues = ({ kind, attributes, error }: SentSpan) => ({
      kind,
      error,
      attributes: Object.fromEntries(Object.entries(attributes).filter(([name]) => name !== "url.full")),
    });
    const uid = pods.history("probed").at(-1)?.metadata.uid;
    const own = () => collector.spans.slice(ofKubelet);
    const created = (spans: readonly SentSpan[], ofPod?: string) =>
      spans.find(
        ({ name, attributes }) =>
          name === "syncPod" &&
          attributes["k8s.pod.update_type"] === "create" &&
          attributes["k8s.pod"] === "default/probed" &&
          (ofPod === undefined || attributes["k8s.pod.uid"] === ofPod),
      );
    const pass = await cluster.waitFor("the pod's trace", async () => created(own(), uid));
    assert.deepEqual([pass.parentSpanId, pass.resource["host.name"]], ["", cluster.nodeName]);
    const call = (spans: readonly SentSpan[], method: string, within?: SentSpan) =>
      spans.find(({ name, traceId }) => name === `runtime.v1.${method}` && traceId === (within?.traceId ?? traceId));
    for (const method of ["RuntimeService/CreateContainer", "RuntimeService/StartContainer", "ImageService/PullImage"])
      assert.equal(call(own(), method, pass)?.kind, 3, method);
    const sandbox = call(own(), "RuntimeService/RunPodSandbox", pass) ?? assert.fail("no sandbox in the trace");
    assert.equal(sandbox.parentSpanId, pass.spanId);
    if (proxy) assert.equal(heard.get(`00-${sandbox.traceId}-${sandbox.spanId}-01`), "RunPodSandbox");

    if (kubelet) {
      const its = collector.spans.slice(0, ofKubelet);
      const reference = created(its) ?? assert.fail("the kubelet has sent no trace");
      // A kubelet's calls name the socket, which another provider's runtime does not have.
      const names = (attributes: object) => Object.keys(attributes).filter((name) => name !== "server.address");
      const keys = ({ attributes, resource, kind }: SentSpan) => [
        names(attributes).sort(),
        resource["service.name"],
        kind,
      ];
      assert.deepEqual(keys(pass), keys(reference));
      const itsSandbox = call(its, "RuntimeService/RunPodSandbox", reference) ?? assert.fail("nor of its sandbox");
      assert.deepEqual(keys(sandbox), keys(itsSandbox));
      for (const request of apiRequests) {
        const told = asked(its, request) ?? assert.fail(`the kubelet has sent no ${request.name} of ${request.path}`);
        const mine = await cluster.waitFor(`a span ${request.name}`, async () => asked(own(), request));
        assert.deepEqual(sharedValues(mine), sharedValues(told));
      }
    }

    const trace = "0af7651916cd43dd8448eb211c80319c";
    const certificate = certificatesIn(cluster.layout.pki).apiServerKubeletClient;
    const headers = [`traceparent: 00-${trace}-b7ad6b7169203331-01`];
    assert.equal((await askKubelet(cluster, "/pods", { certificate, headers })).status, 200);
    const served = await cluster.waitFor("the request's span", async () =>
      own().find(({ traceId }) => traceId === trace),
    );
    assert.deepEqual([served.name, served.kind, served.parentSpanId], ["/pods", 2, "b7ad6b7169203331"]);
  });

  test("profiles of CPU time and memory are read by go tool pprof", async () => {
    const top = async (profile: string) => {
      const file = join(cluster.layout.dir, `${profile.split("?")[0]}.pb.gz`);
      const path = `/api/v1/nodes/${cluster.nodeName}/proxy/debug/pprof/${profile}`;
      const argv = kubectlArgv(cluster.layout, cluster.tools, ["get", "--raw", path]);
      await must(["sh", "-c", 'file=$1; shift; exec "$@" > "$file"', "sh", file, ...argv]);
      return must(["go", "tool", "pprof", "-top", file], { timeoutMs: 300_000 }); // Go builds pprof at its first use.
    };
    const [cpu, heap] = await Promise.all([top("profile?seconds=1"), top("heap?seconds=1")]);
    assert.match(cpu, /^Type: cpu\n(.*\n)*Duration: 1(\.\d+)?s, Total samples = /);
    assert.match(heap, /^Type: inuse_space\n/);
    assert.match(await proxied("debug/pprof/"), /^\/debug\/pprof\/\nheap: /);
    await assert.rejects(proxied("debug/pprof/goroutine"), /NotFound/);
  });

  test("the dashboard shows the node, its pods and their usage in a browser", async () => {
    await using way = await forwardedPort(cluster.spawnAtAgent, pagePort);
    const origin = `http://127.0.0.1:${way.port}`;
    await using looked = await look(`${origin}/`);
    const { page, faults, requests } = looked;
    const explain = async () => JSON.stringify([await rowsIn(page, "pods"), faults]);
    await cluster.waitFor(
      "the pod's usage to be shown",
      async () => (await rowsIn(page, "pods")).some((row) => row.includes("/probed") && /[KM]iB/.test(row)),
      { timeoutMs: 60_000, explain },
    );
    const rows = await rowsIn(page, "pods");
    for (const [name, status] of [
      ["broken", /ErrImagePull|ImagePullBackOff/],
      ["task", /Error/],
      ["probed", /Running1\/1/],
    ] as const)
      assert.match(rows.find((row) => row.includes(`/${name}`)) ?? "", status);
    await page.waitForSelector(".legend li");
    assert.equal((await page.$$("canvas")).length, 4);
    assert.match(await textOf(page, "#nodes"), new RegExp(`${cluster.nodeName}.*Ready · `));
    assert.match(await textOf(page, "#notes"), /Pulled|Started|Failed/);
    assert.deepEqual(faults, []);
    assert.deepEqual(
      requests.filter((url) => !url.startsWith(`${origin}/`)),
      [],
    );
  });

  test("no probe series of a deleted pod remain", async () => {
    await Promise.all([pods.remove("probed"), pods.remove("broken")]);
    const labels = { volume_plugin: "kubernetes.io/configmap", operation_name: "volume_unmount", status: "success" };
    await cluster.waitFor("its volumes to be taken down", async () => {
      const { node } = await scrape();
      return (value("storage_operation_duration_seconds_count", labels, node) ?? 0) > 0;
    });
    await cluster.waitFor(
      "its series to go",
      async () => parseExposition(await proxied("metrics/probes")).get("prober_probe_total")?.samples.length === 0,
    );
    await cluster.waitFor(
      "no pod to run",
      async () => value("kubelet_running_pods", {}, parseExposition(await proxied("metrics"))) === 0,
    );
  });
});

/** The names of the labels that its series have. */
function labelsOf({ samples }: Family): readonly string[] {
  const names = samples.flatMap(({ labels }) => Object.keys(labels));
  return [...new Set(names)].filter((name) => name !== "le").sort((a, b) => (a < b ? -1 : 1));
}
