import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { parse, stringify } from "yaml";
import { objectsIn, ofKind, templateArguments, valueFiles } from "../harness/chart.ts";
import { chart, findHelm } from "../harness/helm.ts";
import { must } from "../harness/processes.ts";

interface Rule {
  readonly alert: string;
  readonly annotations: Readonly<Record<string, string>>;
}
interface Groups {
  readonly groups: readonly { readonly rules: readonly Rule[] }[];
}

const rulesFile = join(chart, "files", "rules.yaml");

/** What makes an alert fire, as promtool's series of a value a minute, and when it is looked at; the same node is well in `well`. */
interface Case {
  readonly bad: readonly string[];
  readonly well: readonly string[];
  readonly at: string;
  /** A label of the alert; by default that of the node. */
  readonly of?: string;
}

const cases: Readonly<Record<string, Case>> = {
  GraftletDown: {
    bad: ['up{job="graftlet", metrics_path="/metrics", node="n"} 0x30'],
    well: ['up{job="graftlet", metrics_path="/metrics", node="n"} 0 0 0 1x30'],
    at: "6m",
  },
  GraftletLinkDown: { bad: ['graftlet_link_up{node="n"} 0x30'], well: ['graftlet_link_up{node="n"} 0 1x30'], at: "3m" },
  GraftletLinkUnstable: {
    bad: ['graftlet_link_losses_total{node="n"} 0+1x60'],
    well: ['graftlet_link_losses_total{node="n"} 0x30 2x30'],
    at: "60m",
  },
  GraftletKubeletUnreachable: {
    bad: ['graftlet_kubelet_reachable{node="n"} 0x30'],
    well: ['graftlet_kubelet_reachable{node="n"} 0x5 1x30'],
    at: "11m",
  },
  GraftletCertificateExpires: {
    bad: ['kubelet_certificate_manager_server_ttl_seconds{job="graftlet", node="n"} 80000x90'],
    well: [
      'kubelet_certificate_manager_server_ttl_seconds{job="graftlet", node="n"} 90000x90',
      'kubelet_certificate_manager_client_ttl_seconds{job="graftlet", node="n"} 9000000x90',
    ],
    at: "61m",
  },
  GraftletDiskFills: {
    bad: [
      'container_fs_usage_bytes{job="graftlet", node="n", id="/", device="sda"} 86x40',
      'container_fs_limit_bytes{job="graftlet", node="n", id="/", device="sda"} 100x40',
    ],
    well: [
      'container_fs_usage_bytes{job="graftlet", node="n", id="/", device="sda"} 86x10 84x30',
      'container_fs_limit_bytes{job="graftlet", node="n", id="/", device="sda"} 100x40',
      'container_fs_usage_bytes{job="graftlet", node="n", id="/kubepods", device="sda"} 99x40',
      'container_fs_limit_bytes{job="graftlet", node="n", id="/kubepods", device="sda"} 100x40',
    ],
    at: "20m",
  },
  GraftletEvictions: {
    bad: ['kubelet_evictions{job="graftlet", node="n", eviction_signal="memory.available"} 0x10 1x20'],
    well: ['kubelet_evictions{job="graftlet", node="n", eviction_signal="memory.available"} 7x30'],
    at: "15m",
  },
  GraftletPlegStalled: {
    bad: ['kubelet_pleg_last_seen_seconds{job="graftlet", node="n"} 60x30'],
    well: ['kubelet_pleg_last_seen_seconds{job="graftlet", node="n"} 0+60x30'],
    at: "10m",
  },
  GraftletRuntimeErrors: {
    bad: [
      'kubelet_runtime_operations_errors_total{job="graftlet", node="n", operation_type="a"} 0+20x40',
      'kubelet_runtime_operations_total{job="graftlet", node="n", operation_type="a"} 0+100x40',
    ],
    well: [
      'kubelet_runtime_operations_errors_total{job="graftlet", node="n", operation_type="a"} 0+5x40',
      'kubelet_runtime_operations_total{job="graftlet", node="n", operation_type="a"} 0+100x40',
    ],
    at: "25m",
  },
  GraftletWritesRefused: {
    bad: ['rest_client_requests_total{job="graftlet", node="n", method="PATCH", code="403"} 0+1x30'],
    well: ['rest_client_requests_total{job="graftlet", node="n", method="GET", code="403"} 0+9x30'],
    at: "15m",
  },
  GraftletContainersRestart: {
    bad: [
      'kubelet_started_containers_total{job="graftlet", node="n", container_type="container"} 0+4x40',
      'kubelet_started_pods_total{job="graftlet", node="n", static=""} 0x40',
    ],
    well: [
      'kubelet_started_containers_total{job="graftlet", node="n", container_type="container"} 0+4x40',
      'kubelet_started_pods_total{job="graftlet", node="n", static=""} 0+2x40',
    ],
    at: "30m",
  },
  GraftletProcessDown: {
    bad: ['up{job="graftlet", metrics_path="/metrics/objects", namespace="edge"} 0x30'],
    well: [
      'up{job="graftlet", metrics_path="/metrics/objects", namespace="edge"} 0 0 0 1x30',
      'up{job="graftlet", metrics_path="/metrics", namespace="edge", node="n"} 0x30',
    ],
    at: "6m",
    of: 'namespace="edge"',
  },
  GraftletMachineNotReady: {
    // Another reason does not start the fifteen minutes again.
    bad: [
      'graftlet_grafted_node_ready{node="n", pool="p"} 0x40',
      'graftlet_grafted_node_not_ready_reason{node="n", pool="p", reason="LinkDown"} 1x8 stale',
      'graftlet_grafted_node_not_ready_reason{node="n", pool="p", reason="LoginRefused"} _x9 1x30',
    ],
    well: [
      'graftlet_grafted_node_ready{node="n", pool="p"} 0x40',
      'graftlet_grafted_node_not_ready_reason{node="n", pool="p", reason="Paused"} 1x40',
    ],
    at: "16m",
  },
  GraftletMachineLeavingStuck: {
    bad: ['graftlet_grafted_node_not_ready_reason{node="n", pool="", reason="Leaving"} 1x60'],
    well: [
      'graftlet_grafted_node_not_ready_reason{node="n", pool="", reason="Leaving"} 1x20 stale',
      'graftlet_grafted_node_not_ready_reason{node="n", pool="", reason="Inactive"} _x20 1x40',
    ],
    at: "31m",
  },
  GraftletMachineUnowned: {
    bad: [
      'graftlet_unowned_grafted_nodes{namespace="graftlet", pod="a"} 2x30',
      'graftlet_unowned_grafted_nodes{namespace="graftlet", pod="b"} 0x30',
    ],
    well: ['graftlet_unowned_grafted_nodes{namespace="graftlet", pod="a"} 2 2 0x30'],
    at: "3m",
    of: 'namespace="graftlet"',
  },
  GraftletPoolRolloutPaused: {
    bad: ['graftlet_grafted_node_pool_rollout_paused{pool="p"} 1x30'],
    well: ['graftlet_grafted_node_pool_rollout_paused{pool="p"} 1x3 0x30'],
    at: "6m",
    of: 'pool="p"',
  },
};

/** The same series as Prometheus has them of a kubelet: those that are graftlet's alone it has not. */
const ofKubelets = (lines: readonly string[]) =>
  lines.flatMap((line) =>
    line.includes('job="graftlet"') ? [line.replaceAll('job="graftlet"', 'job="kubelet"')] : [],
  );

describe("the chart's alerts", { timeout: 120_000 }, () => {
  const { groups } = parse(readFileSync(rulesFile, "utf8")) as Groups;
  const rules = groups.flatMap((group) => group.rules);
  let folder: string;
  before(() => void (folder = mkdtempSync(join(tmpdir(), "graftlet-alerts-"))));
  after(() => rmSync(folder, { recursive: true }));

  test("alert rules are valid for promtool, and each alert is documented", async () => {
    await must(["promtool", "check", "rules", rulesFile]);
    const headings = [...readFileSync(join(chart, "..", "..", "docs", "alerts.md"), "utf8").matchAll(/^## (.+)$/gm)];
    const names = new Set(rules.map(({ alert }) => alert));
    assert.deepEqual(new Set(headings.map(([, name]) => name)), names);
    for (const { alert, annotations } of rules)
      assert.ok(annotations["runbook_url"]?.endsWith(`#${alert.toLowerCase()}`), alert);
    assert.deepEqual(new Set(Object.keys(cases)), names);
  });

  for (const [alert, { bad, well, at, of = 'node="n"' }] of Object.entries(cases))
    test(`${alert} fires for a faulty node, but not for a healthy node or a kubelet's node`, async () => {
      const file = join(folder, `${alert}.yaml`);
      const series = (lines: readonly string[]) =>
        lines.map((line) => {
          const space = line.indexOf("} ") + 1;
          return { series: line.slice(0, space), values: line.slice(space + 1) };
        });
      const now = (lines: readonly string[], count: number) => ({
        interval: "1m",
        input_series: series(lines),
        promql_expr_test: [
          {
            expr: `count(ALERTS{alertname="${alert}", alertstate="firing", ${of}}) or vector(0)`,
            eval_time: at,
            exp_samples: [{ labels: "{}", value: count }],
          },
        ],
      });
      writeFileSync(
        file,
        stringify({
          rule_files: [rulesFile],
          evaluation_interval: "1m",
          tests: [now(bad, 1), now(well, 0), now(ofKubelets(bad), 0)],
        }),
      );
      await must(["promtool", "test", "rules", file]);
    });

  test("GraftletMachineNotReady names the current reason", async () => {
    const file = join(folder, "reason.yaml");
    const labels = '{node="n", pool="p"';
    const [rule] = rules.filter(({ alert }) => alert === "GraftletMachineNotReady");
    const exp_annotations = { ...rule?.annotations, summary: "GraftedNode n is not Ready (LoginRefused)" };
    const exp_alerts = [{ exp_labels: { severity: "warning", node: "n", pool: "p" }, exp_annotations }];
    const input_series = [
      { series: `graftlet_grafted_node_ready${labels}}`, values: "0x40" },
      { series: `graftlet_grafted_node_not_ready_reason${labels}, reason="LinkDown"}`, values: "1x8 stale" },
      { series: `graftlet_grafted_node_not_ready_reason${labels}, reason="LoginRefused"}`, values: "_x9 1x30" },
    ];
    const alert_rule_test = [{ eval_time: "16m", alertname: "GraftletMachineNotReady", exp_alerts }];
    const tests = [{ interval: "1m", input_series, alert_rule_test }];
    writeFileSync(file, stringify({ rule_files: [rulesFile], evaluation_interval: "1m", tests }));
    await must(["promtool", "test", "rules", file]);
  });

  test("alert rules render unchanged into a PrometheusRule, with a ServiceMonitor that finds each node", async () => {
    const helm = await findHelm();
    const values = valueFiles().find(({ name }) => name === "dials-in")?.path ?? "";
    const objects = objectsIn(await must([helm, ...templateArguments("--values", values)]));
    const [rule] = ofKind<{ spec: Groups; metadata: { labels: Record<string, string> } }>(objects, "PrometheusRule");
    assert.deepEqual(rule?.spec, { groups });
    assert.equal(rule?.metadata.labels["release"], "stack");
    const [monitor] = ofKind<{ spec: { selector: { matchLabels: Record<string, string> } } }>(
      objects,
      "ServiceMonitor",
    );
    const wanted = Object.entries(monitor?.spec.selector.matchLabels ?? {});
    const services = ofKind<{
      metadata: { labels: Record<string, string>; annotations?: Record<string, string> };
      spec: { ports: { name: string }[] };
    }>(objects, "Service");
    const scraped = services
      .filter(({ metadata }) => wanted.every(([key, value]) => metadata.labels[key] === value))
      .filter(({ spec }) => spec.ports.some(({ name }) => name === "kubelet"));
    assert.deepEqual(
      scraped.map(({ metadata }) => metadata.annotations?.["graftlet.dev/node"]),
      ["edge-1", "edge-2", "edge-3"],
    );
  });
});
