import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, statfsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { parse, stringify } from "yaml";
import type { Node, Service } from "../../src/objects.ts";
import { chart } from "../harness/helm.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { networkArgv } from "../harness/namespaces.ts";
import { run, start } from "../harness/processes.ts";
import { metricsPort } from "./helm/objects-metrics.ts";
import { releaseOf } from "./helm/release.ts";
import { server } from "./helm/tunnel.ts";
import { placed } from "./helm/workload.ts";

const port = 19_090;
const rulesFile = join(chart, "files", "rules.yaml");

/** Counters that have no series before the first event of their kind. */
const rare = [
  "kubelet_evictions",
  "graftlet_grafted_node_not_ready_reason",
  // The release has no pools.
  "graftlet_grafted_node_pool_rollout_paused",
  // It serves no GraftedNodes.
  "graftlet_unowned_grafted_nodes",
];

interface Rules {
  readonly groups: readonly { readonly rules: readonly { readonly expr: string }[] }[];
}

interface Dashboard {
  readonly panels: readonly { readonly title: string; readonly targets: readonly { readonly expr: string }[] }[];
}

describe("a real Prometheus that scrapes a node of the chart", { timeout: 300_000 }, () => {
  let lab: HelmLab;
  let prometheus: ChildProcess | undefined;
  let log = "";

  /** Labels and values of a query's series. */
  const ask = async (query: string) => {
    const url = `http://127.0.0.1:${port}/api/v1/query`;
    const argv = ["curl", "--silent", "--get", "--data-urlencode", `query=${query}`, url];
    const { stdout } = await run(networkArgv(lab.cluster.layout, argv));
    const { data } = JSON.parse(stdout || "{}") as {
      data?: { result: { metric: Record<string, string>; value: [number, string] }[] };
    };
    return data?.result ?? [];
  };
  const until = (query: string) =>
    lab.cluster.waitFor(query, async () => (await ask(query)).length > 0, {
      timeoutMs: 60_000,
      explain: () => log.slice(-2_000),
    });

  before(async () => {
    lab = await startHelmLab("monitoring", { say: (line) => console.error(line) });
    const { cluster } = lab;
    await releaseOf(lab).install(`--set=monitoring.metricsPort=${metricsPort}`);
    await cluster.apply([server("talks", placed)]);
    await cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/talks", "--timeout=60s"]);
    await cluster.mustKubectl(["wait", "--for=condition=KubeletReachable", `node/${release.node}`, "--timeout=90s"]);
    await cluster.mustKubectl(["create", "serviceaccount", "prometheus"]);
    await cluster.mustKubectl(["create", "clusterrole", "prometheus", "--verb=get", "--resource=nodes/metrics"]);
    await cluster.mustKubectl([
      "create",
      "clusterrolebinding",
      "prometheus",
      "--clusterrole=prometheus",
      "--serviceaccount=default:prometheus",
    ]);
    const token = (await cluster.mustKubectl(["create", "token", "prometheus"])).trim();
    const node = await cluster.get<Node>("node", release.node);
    const address = node?.status?.addresses?.find(({ type }) => type === "InternalIP")?.address;
    const folder = join(cluster.layout.dir, "prometheus");
    mkdirSync(folder);
    // As the chart's ServiceMonitor has it.
    const jobs = ["/metrics", "/metrics/probes", "/metrics/resource", "/metrics/cadvisor"].map((path) => ({
      job_name: `graftlet${path.replaceAll("/", "-")}`,
      metrics_path: path,
      scheme: "https",
      honor_labels: true,
      authorization: { credentials: token },
      tls_config: { insecure_skip_verify: true },
      static_configs: [{ targets: [`${address}:10250`], labels: { node: release.node } }],
      relabel_configs: [
        { target_label: "job", replacement: "graftlet" },
        { source_labels: ["__metrics_path__"], target_label: "metrics_path" },
      ],
    }));
    const service = await cluster.get<Service>("service", `${release.name}-graftlet-metrics`, release.namespace);
    const ofObjects = {
      ...jobs[0],
      job_name: "graftlet-metrics-objects",
      metrics_path: "/metrics/objects",
      static_configs: [{ targets: [`${service?.spec?.clusterIP}:${metricsPort}`] }],
    };
    const config = {
      global: { scrape_interval: "2s", evaluation_interval: "2s" },
      rule_files: [rulesFile],
      scrape_configs: [...jobs, ofObjects],
    };
    writeFileSync(join(folder, "prometheus.yml"), stringify(config), { mode: 0o600 });
    const flags = [
      `--config.file=${folder}/prometheus.yml`,
      `--storage.tsdb.path=${folder}/data`,
      `--web.listen-address=127.0.0.1:${port}`,
    ];
    prometheus = start(networkArgv(cluster.layout, ["prometheus", ...flags]), { stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [prometheus.stdout, prometheus.stderr])
      stream?.on("data", (chunk: Buffer) => (log = (log + chunk.toString()).slice(-10_000)));
  });
  after(async () => {
    if (prometheus && prometheus.exitCode === null) {
      const over = once(prometheus, "exit");
      prometheus.kill("SIGTERM");
      await over;
    }
    await lab?.[Symbol.asyncDispose]();
  });

  test("scrapes all paths, and finds every series that an alert uses", async () => {
    await until('count(up{job="graftlet"} == 1) == 5');
    // A node that is well has no series of the runtime's errors.
    const unknown = { name: "main", image: "registry.invalid/unknown:1" };
    const spec = { ...placed, containers: [unknown], terminationGracePeriodSeconds: 1 };
    await lab.cluster.apply([{ apiVersion: "v1", kind: "Pod", metadata: { name: "unpullable" }, spec }]);
    const { groups } = parse(readFileSync(rulesFile, "utf8")) as Rules;
    const exprs = groups.flatMap(({ rules }) => rules.map(({ expr }) => expr)).join(" ");
    const names = new Set(exprs.match(/\b(?:graftlet|kubelet|rest_client|container_fs)_\w+/g));
    assert.ok(names.size >= 10);
    for (const name of names) if (!rare.includes(name)) await until(`${name}{node="${release.node}"}`);
    await lab.cluster.mustKubectl(["delete", "pod", "unpullable", "--timeout=30s"]);
    assert.equal((await ask("graftlet_link_up"))[0]?.value[1], "1");
    assert.equal((await ask("graftlet_kubelet_reachable"))[0]?.value[1], "1");
    assert.equal((await ask(`graftlet_grafted_node_ready{node="${release.node}"}`))[0]?.value[1], "1");
  });

  for (const dashboard of ["fleet", "node"])
    test(`Prometheus has data for each query of the dashboard ${dashboard}`, async () => {
      const { panels } = JSON.parse(
        readFileSync(join(chart, "files", "dashboards", `${dashboard}.json`), "utf8"),
      ) as Dashboard;
      assert.ok(panels.length > 5);
      for (const { title, targets } of panels)
        for (const { expr } of targets) {
          const query = expr.replaceAll("$node", release.node).replaceAll("$__rate_interval", "30s");
          assert.ok(await until(query), title);
        }
    });

  test("fires no alert for a healthy node, and one for an unreachable machine", async () => {
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    // The disk is the machine's own.
    const { blocks, bfree } = statfsSync(lab.cluster.layout.dir);
    assert.deepEqual(
      (await ask("ALERTS")).map(({ metric }) => metric["alertname"]),
      bfree < 0.15 * blocks ? ["GraftletDiskFills"] : [],
    );
    await lab.edge.unplug();
    const pending = (alert: string) =>
      until(`ALERTS{alertname="${alert}", alertstate="pending", node="${release.node}"}`);
    await pending("GraftletLinkDown");
    await until(`graftlet_grafted_node_not_ready_reason{node="${release.node}"}`);
    await pending("GraftletMachineNotReady");
    await lab.edge.plug();
    await lab.cluster.waitFor(
      "the alerts to go",
      async () => (await ask('ALERTS{alertname=~"GraftletLinkDown|GraftletMachineNotReady"}')).length === 0,
      { timeoutMs: 60_000 },
    );
    assert.ok(Number((await ask("graftlet_link_losses_total"))[0]?.value[1]) > 0);
  });
});
