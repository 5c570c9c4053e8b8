import assert from "node:assert/strict";
import { test } from "node:test";
import { serviceEndpoints } from "../../../src/endpoint-publisher/service-endpoints.ts";
import type { Pod, PodStatus, Service } from "../../../src/objects.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const ready = { type: "Ready", status: "True" };

const serving = (status: PodStatus = {}, spec: object = {}, meta: object = {}): Pod => ({
  ...aPod(
    { containers: [aContainer("a", { ports: [{ name: "web", containerPort: 8080 }] })], ...spec },
    {
      labels: { app: "shop", tier: "front" },
      ...meta,
    },
  ),
  status: { phase: "Running", podIP: "10.88.0.5", conditions: [ready], ...status },
});

const shop = (spec: Service["spec"] = {}, namespace = "default"): Service => ({
  metadata: { name: "shop", namespace, uid: "s" },
  spec: {
    clusterIP: "10.96.0.9",
    clusterIPs: ["10.96.0.9"],
    selector: { app: "shop" },
    ports: [{ port: 80 }],
    ...spec,
  },
});

const found = (service: Service, pod: Pod) => serviceEndpoints([service], [pod])[0];

test("a pod is an endpoint of the Services that select it in its namespace", () => {
  assert.equal(found(shop(), serving())?.pod.metadata.uid, serving().metadata.uid);
  assert.ok(found(shop({ selector: { app: "shop", tier: "front" } }), serving()));
  const others = [
    shop({ selector: { app: "shop", tier: "back" } }),
    shop({ selector: {} }),
    shop({}, "elsewhere"),
    shop({ clusterIP: "None", clusterIPs: ["None"] }),
    shop({ clusterIP: "fd00::9", clusterIPs: ["fd00::9"] }),
    shop({ type: "ExternalName" }),
    shop({ ports: [{ port: 53, protocol: "UDP" }] }),
  ];
  assert.deepEqual(serviceEndpoints(others, [serving()]), []);
});

test("omits host network pods and terminal pods", () => {
  const none = [
    serving({ podIP: "" }),
    serving({}, { hostNetwork: true }),
    serving({ phase: "Failed" }),
    serving({ phase: "Succeeded" }),
  ];
  assert.deepEqual(serviceEndpoints([shop()], none), []);
});

test("sets endpoint conditions as the cluster's controller does", () => {
  const ending = { deletionTimestamp: "2026-01-01T00:00:00Z" };
  const of = (pod: Pod, spec: Service["spec"] = {}) => {
    const { ready: is, serving: serves, terminating } = found(shop(spec), pod)?.conditions ?? {};
    return [is, serves, terminating];
  };
  const early = { publishNotReadyAddresses: true };
  assert.deepEqual(of(serving()), [true, true, false]);
  assert.deepEqual(of(serving({ conditions: [] })), [false, false, false]);
  assert.deepEqual(of(serving({}, {}, ending)), [false, true, true]);
  assert.deepEqual(of(serving({ conditions: [] }), early), [true, false, false]);
  assert.deepEqual(of(serving({}, {}, ending), early), [true, true, true]);
});

test("resolves target ports by number and by container port name", () => {
  const sidecar = aContainer("s", { restartPolicy: "Always", ports: [{ name: "metrics", containerPort: 9090 }] });
  const ports = [
    { name: "plain", port: 80 },
    { name: "number", port: 81, targetPort: 8081, appProtocol: "http" },
    { name: "name", port: 82, targetPort: "web" },
    { name: "sidecar", port: 83, targetPort: "metrics" },
    { name: "unknown", port: 84, targetPort: "nothing" },
    { name: "datagrams", port: 85, protocol: "UDP" },
  ];
  assert.deepEqual(found(shop({ ports }), serving({}, { initContainers: [sidecar] }))?.ports, [
    { name: "plain", target: 80 },
    { name: "number", target: 8081, appProtocol: "http" },
    { name: "name", target: 8080 },
    { name: "sidecar", target: 9090 },
  ]);
});
