import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import type { V1ClusterRole, V1Service } from "@kubernetes/client-node";
import { objectsIn, ofKind, templateArguments, valueFiles } from "../harness/chart.ts";
import { findHelm } from "../harness/helm.ts";
import { verdictsOn } from "../harness/kubeconform.ts";
import { must } from "../harness/processes.ts";

interface ServiceMonitor {
  readonly spec: { readonly endpoints: readonly Endpoint[] };
}
interface Endpoint {
  readonly port: string;
  readonly path: string;
  readonly interval: string;
  readonly scrapeTimeout?: string;
  readonly bearerTokenFile?: string;
  readonly authorization?: object;
  readonly relabelings: readonly { readonly targetLabel?: string }[];
  readonly metricRelabelings?: readonly object[];
}

describe("values of the ServiceMonitor and of the listener's Service", { timeout: 300_000 }, () => {
  let helm: string;
  const render = async (values: object) => {
    const path = valueFiles().find(({ name }) => name === "dials-in")?.path ?? "";
    const set = Object.entries(values).map(([name, value]) => `--set-json=${name}=${JSON.stringify(value)}`);
    const text = await must([helm, ...templateArguments("--values", path, ...set)]);
    const bad = (await verdictsOn(text, console.error)).filter(({ status }) => status !== "statusValid");
    assert.deepEqual(bad, []);
    return objectsIn(text);
  };
  const endpoints = async (values: object) =>
    ofKind<ServiceMonitor>(await render(values), "ServiceMonitor").flatMap(({ spec }) => spec.endpoints);
  const listener = async (values: object) => {
    const services = ofKind<V1Service>(await render(values), "Service");
    return services.find(({ metadata }) => metadata?.name === "edge-graftlet-listener");
  };
  before(async () => {
    helm = await findHelm();
  });

  test("the ServiceMonitor scrapes each path as configured, and keeps the labels that alerts need", async () => {
    const shard = { targetLabel: "site", replacement: "north" };
    const drop = { action: "drop", sourceLabels: ["__name__"], regex: "container_blkio_.*" };
    const at = "monitoring.serviceMonitor";
    const values = { [`${at}.scrapeTimeout`]: "20s", [`${at}.relabelings`]: [shard] };
    const found = await endpoints({ ...values, [`${at}.metricRelabelings`]: [drop] });
    assert.equal(found.length, 5);
    for (const { scrapeTimeout, relabelings, metricRelabelings } of found) {
      assert.equal(scrapeTimeout, "20s");
      assert.deepEqual(
        relabelings.map(({ targetLabel }) => targetLabel),
        ["job", "metrics_path", "node", "site"],
      );
      assert.deepEqual(metricRelabelings, [drop]);
    }
  });

  test("the ServiceMonitor finds the metrics of GraftedNodes at a Service that includes a Pod that is not ready", async () => {
    const portsOf = async (values: object) => {
      const services = ofKind<V1Service>(await render(values), "Service");
      const service = services.find(({ metadata }) => metadata?.name === "edge-graftlet-metrics");
      assert.notEqual(service?.spec?.publishNotReadyAddresses, false);
      return service?.spec?.ports?.map(({ name, port }) => `${name} ${port}`);
    };
    const pathsOf = async (values: object) =>
      (await endpoints(values)).flatMap(({ port, path }) => (port === "metrics" ? [path] : []));
    assert.deepEqual([await portsOf({}), await pathsOf({})], [["metrics 10249"], ["/metrics/objects"]]);
    const other = { "monitoring.metricsPort": 9100 };
    assert.deepEqual([await portsOf(other), await pathsOf(other)], [["metrics 9100"], ["/metrics/objects"]]);
    for (const none of [{ "monitoring.metricsPort": 0 }, { nodeObjects: false }])
      assert.deepEqual([await portsOf(none), await pathsOf(none)], [undefined, []]);
  });

  test("graftlet's account may review callers only if it serves metrics of GraftedNodes", async () => {
    const reviews = async (values: object) => {
      const roles = ofKind<V1ClusterRole>(await render(values), "ClusterRole");
      const resources = roles.flatMap(({ rules = [] }) => rules.flatMap((rule) => rule.resources ?? []));
      return resources.filter((resource) => resource.endsWith("reviews"));
    };
    assert.deepEqual(await reviews({}), ["tokenreviews", "subjectaccessreviews"]);
    assert.deepEqual(await reviews({ "monitoring.serviceMonitor.enabled": false }), []);
  });

  test("credentials from a Secret replace Prometheus' service account token", async () => {
    const credentials = { name: "prometheus-token", key: "token" };
    for (const { bearerTokenFile } of await endpoints({}))
      assert.equal(bearerTokenFile, "/var/run/secrets/kubernetes.io/serviceaccount/token");
    for (const endpoint of await endpoints({ "monitoring.serviceMonitor.authorization": { credentials } })) {
      assert.deepEqual(endpoint.authorization, { credentials });
      assert.equal(endpoint.bearerTokenFile, undefined);
    }
  });

  test("labels of the listener's Service replace common labels, but not the chart's own", async () => {
    const labels = { pool: "edge", team: "network", "app.kubernetes.io/name": "mine" };
    const service = await listener({ commonLabels: { team: "edge", site: "a" }, "reverse.service.labels": labels });
    const { pool, team, site, "app.kubernetes.io/name": name } = service?.metadata?.labels ?? {};
    assert.deepEqual({ pool, team, site, name }, { pool: "edge", team: "network", site: "a", name: "graftlet" });
  });

  test("loadBalancerClass is set only on a Service of type LoadBalancer", async () => {
    const classOf = async (type: string, loadBalancerClass: string) =>
      (await listener({ "reverse.service": { type, loadBalancerClass } }))?.spec?.loadBalancerClass;
    assert.equal(await classOf("LoadBalancer", "example.org/internal"), "example.org/internal");
    assert.equal(await classOf("LoadBalancer", ""), undefined);
    assert.equal(await classOf("NodePort", "example.org/internal"), undefined);
  });
});
