import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Agent, nodeReady, startGraftlet } from "../harness/agent.ts";
import { certificatesIn } from "../harness/certificates.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { askKubelet } from "../harness/kubelet-api.ts";
import { particulars } from "../harness/particulars.ts";
import { openPods, type Pods, shell } from "../harness/pods.ts";
import { type Family, parseExposition } from "../unit/metrics/exposition.ts";

const mebibyte = 2 ** 20;

interface Usage {
  readonly cpu?: { readonly time: string; readonly usageNanoCores?: number; readonly usageCoreNanoSeconds: number };
  readonly memory?: {
    readonly usageBytes: number;
    readonly workingSetBytes: number;
    readonly rssBytes: number;
    readonly availableBytes?: number;
  };
}
interface FileSystem {
  readonly usedBytes?: number;
  readonly capacityBytes: number;
  readonly availableBytes: number;
  readonly inodesUsed?: number;
}
interface ContainerStats extends Usage {
  readonly name: string;
  readonly startTime: string;
  readonly rootfs?: FileSystem;
  readonly logs?: FileSystem;
}
interface PodStats extends Usage {
  readonly podRef: { readonly name: string; readonly namespace: string; readonly uid: string };
  readonly startTime: string;
  readonly containers: readonly ContainerStats[];
  readonly network?: { readonly name: string; readonly rxBytes?: number; readonly interfaces?: readonly object[] };
  readonly volume?: readonly (FileSystem & { readonly name: string })[];
  readonly "ephemeral-storage"?: FileSystem;
  readonly process_stats?: { readonly process_count: number };
}
interface Summary {
  readonly node: Usage & { readonly nodeName: string; readonly fs?: FileSystem; readonly runtime?: object };
  readonly pods: readonly PodStats[];
}

interface Said {
  readonly summary: Summary;
  readonly resource: Map<string, Family>;
  readonly cadvisor: Map<string, Family>;
}

// The real kubelet runs the node first, where its runtime is one that kubelets have: graftlet's names, types and labels are held
// to its.
describe("statistics of the kubelet API", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let pods: Pods;
  let agent: Agent;
  /** Bytes in the layer of the pod's container. */
  const written = 5_000_000;
  /** Least bytes in its log: some 40 for each of its 200 000 empty lines. Docker's own log files are elsewhere. */
  let logged = 0;
  let kubelet: Said | undefined;
  let graftlet: Said;

  const proxied = (path: string) =>
    cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/${path}`]);
  const summarize = async (query = ""): Promise<Summary> =>
    JSON.parse(await proxied(`stats/summary${query}`)) as Summary;
  const podIn = (summary: Summary, name: string) => summary.pods.find(({ podRef }) => podRef.name === name);
  const scrape = async (): Promise<Said> => ({
    summary: await summarize(),
    resource: parseExposition(await proxied("metrics/resource")),
    cadvisor: parseExposition(await proxied("metrics/cadvisor")),
  });
  /** All that is measured of the pod, twice, and files once. */
  const scrapeWhenMeasured = () =>
    cluster.waitFor(
      "the pod to be measured",
      async () => {
        const said = await scrape();
        const pod = podIn(said.summary, "user");
        const [container] = pod?.containers ?? [];
        const measured = (container?.cpu?.usageNanoCores ?? 0) > 0 && (pod?.volume?.length ?? 0) >= 3;
        // containerd measures layers every ten seconds, and may have done it while the pod wrote; so may a log's measurement.
        const { rootfs, logs } = container ?? {};
        return measured && (rootfs?.usedBytes ?? 0) >= written && (logs?.usedBytes ?? 0) >= logged && said;
      },
      { timeoutMs: 180_000, everyMs: 2_000 },
    );

  const runPods = async () => {
    await pods.create("user", {
      volumes: [
        { name: "scratch", emptyDir: {} },
        { name: "memory", emptyDir: { medium: "Memory" } },
      ],
      containers: [
        shell(
          `head -c ${written} /dev/zero >/written; head -c 3000000 /dev/zero >/scratch/written; head -c 20000000 /dev/zero >/memory/held; head -c 200000 /dev/zero | tr '\\0' '\\n'; touch /tmp/ready; while :; do :; done`,
          {
            resources: { limits: { cpu: "200m", memory: "80Mi" } },
            volumeMounts: ["scratch", "memory"].map((name) => ({ name, mountPath: `/${name}` })),
            readinessProbe: { exec: { command: ["test", "-e", "/tmp/ready"] }, periodSeconds: 1, timeoutSeconds: 20 },
          },
        ),
      ],
    });
    await pods.create("task", { restartPolicy: "Never", containers: [shell("true")] });
    await pods.ready("user");
    await pods.until("task", "to have ended", ({ status }) => status?.phase === "Succeeded");
  };

  before(async () => {
    cluster = await startCluster({ name: "stats" });
    logged = cluster.provider.includes("docker") ? 0 : 7_000_000;
    pods = await openPods(cluster);
    if (cluster.provider === "cri") {
      await using reference = await particulars.cri.startReference(cluster);
      await runPods();
      kubelet = await scrapeWhenMeasured();
      await cluster.mustKubectl(["delete", "pods", "--all", "--grace-period=1", "--timeout=60s"]);
      assert.equal(await reference.stop(), true);
    }
    agent = await startGraftlet(cluster);
    await cluster.waitFor("graftlet to have its node", () => agent.log().includes("node is registered"));
    await nodeReady(cluster, cluster.nodeName);
    await runPods();
    graftlet = await scrapeWhenMeasured();
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("metrics have the kubelet's types and labels", (t) => {
    if (!kubelet) return t.diagnostic("this runtime has no kubelet to compare with");
    for (const part of ["resource", "cadvisor"] as const) {
      for (const [name, family] of graftlet[part]) {
        const other = kubelet[part].get(name);
        if (!other) continue;
        assert.equal(family.type, other.type, name);
        assert.deepEqual(labelsOf(family), labelsOf(other), name);
        const timed = ({ samples }: Family) => samples.some(({ at }) => at !== undefined);
        assert.equal(timed(family), timed(other), `${name}: a time of its own`);
      }
    }
    const lacking = [...kubelet.resource.keys()].filter((name) => !graftlet.resource.has(name));
    assert.deepEqual(
      lacking.filter((name) => name !== "scrape_error"),
      [],
    );
  });

  test("the summary has all fields of a kubelet's", (t) => {
    if (!kubelet) return t.diagnostic("this runtime has no kubelet to compare with");
    const of = ({ summary }: Said) => {
      const pod = podIn(summary, "user");
      return { node: summary.node, pod, container: pod?.containers[0], network: pod?.network };
    };
    const [ours, theirs] = [of(graftlet), of(kubelet)];
    for (const part of ["node", "pod", "container", "network"] as const) {
      const lacking = Object.keys(theirs[part] ?? {}).filter((key) => !(key in (ours[part] ?? {})));
      assert.deepEqual(lacking, [], part);
    }
    const volumes = ({ pod }: ReturnType<typeof of>) => pod?.volume?.map(({ name }) => name.slice(0, 8)).sort();
    assert.deepEqual(volumes(ours), volumes(theirs));
  });

  const user = () => podIn(graftlet.summary, "user") ?? assert.fail("the pod is not there");
  const within = (what: string, value: number | undefined, least: number, most: number) =>
    assert.ok(value !== undefined && value >= least && value < most, `${what}: ${value}`);

  test("reports CPU, memory, network and processes of the pod", () => {
    const { network, process_stats: processes, containers } = user();
    const [container] = containers;
    within("a fifth of a core", container?.cpu?.usageNanoCores, 1, 250_000_000);
    const memory = container?.memory ?? assert.fail("no memory");
    within("its working set", memory.workingSetBytes, 19 * mebibyte, memory.usageBytes + 1);
    assert.equal(memory.availableBytes, 80 * mebibyte - memory.workingSetBytes);
    assert.equal(network?.name, "eth0");
    within("its processes", processes?.process_count, 1, 10);
  });

  test("writes are counted in the layer, log and volumes", () => {
    const pod = user();
    const [container] = pod.containers;
    within("its layer", container?.rootfs?.usedBytes, written, 2 * written);
    within("its log", container?.logs?.usedBytes, logged, 9_000_000);
    const volume = (name: string) => pod.volume?.find((one) => one.name === name)?.usedBytes;
    within("on disk", volume("scratch"), 3_000_000, 4_000_000);
    within("in memory", volume("memory"), 20_000_000, 22_000_000);
    within("all on disk", pod["ephemeral-storage"]?.usedBytes, 8_000_000, 20_000_000);
    const { fs } = graftlet.summary.node;
    within("the node's disk", fs?.usedBytes, mebibyte, fs?.capacityBytes ?? 0);
  });

  test("cAdvisor series cover the container and its sandbox", () => {
    const series = (name: string, container: string) =>
      graftlet.cadvisor
        .get(name)
        ?.samples.find(({ labels }) => labels["pod"] === "user" && labels["container"] === container)?.value;
    assert.equal(series("container_spec_cpu_quota", "main"), 20_000);
    assert.equal(series("container_spec_memory_limit_bytes", "main"), 80 * mebibyte);
    within("throttled", series("container_cpu_cfs_throttled_periods_total", "main"), 1, 1e9);
    within("received", series("container_network_receive_bytes_total", ""), 0, 1e9);
    within("rss", series("container_memory_rss", "main"), 1, 1e9);
  });

  test("omits ended containers", async () => {
    assert.equal(podIn(graftlet.summary, "task"), undefined);
    assert.ok(
      graftlet.resource.get("pod_cpu_usage_seconds_total")?.samples.every(({ labels }) => labels["pod"] !== "task"),
    );
    const uid = podIn(graftlet.summary, "user")?.podRef.uid;
    assert.equal(uid, pods.history("user").at(-1)?.metadata.uid);
  });

  test("only_cpu_and_memory omits all other statistics", async () => {
    const { node, pods: all } = await summarize("?only_cpu_and_memory=true");
    assert.ok(node.cpu && node.memory && !node.fs);
    const pod = all.find(({ podRef }) => podRef.name === "user");
    assert.ok(pod?.cpu && pod.memory && !pod.volume && !pod.network && !pod.containers[0]?.rootfs);
  });

  test("statistics are served only to callers with nodes/stats and nodes/metrics", async () => {
    const certificate = certificatesIn(cluster.layout.pki).apiServerKubeletClient;
    for (const path of ["/stats/summary", "/metrics/resource", "/metrics/cadvisor"]) {
      assert.equal((await askKubelet(cluster, path, { certificate })).status, 200, path);
      assert.equal((await askKubelet(cluster, path, {})).status, 401, path);
    }
  });

  test("serves the machine's logs through the API server, and nothing outside them", async () => {
    await cluster.runInside(["mkdir", "-p", "/var/log/service"]);
    await cluster.runInside(["sh", "-c", "echo started >/var/log/service/its.log"]);
    assert.match(await proxied("logs/"), /<a href="service\/">service\/<\/a>/);
    assert.match(await proxied("logs/service/"), /<a href="its\.log">its\.log<\/a>/);
    assert.equal(await proxied("logs/service/its.log"), "started\n");
    await cluster.runInside(["ln", "-sf", "/etc/shadow", "/var/log/way-out"]);
    const { code, stderr } = await cluster.kubectl([
      "get",
      "--raw",
      `/api/v1/nodes/${cluster.nodeName}/proxy/logs/way-out`,
    ]);
    assert.notEqual(code, 0);
    assert.match(stderr, /is outside \/var\/log/);
  });
});

/** The names of the labels that its series have. */
function labelsOf({ samples }: Family): readonly string[] {
  return [...new Set(samples.flatMap(({ labels }) => Object.keys(labels)))].sort((a, b) => (a < b ? -1 : 1));
}
