import assert from "node:assert/strict";
import { test } from "node:test";
import type { ApiClient } from "../../../src/api/client.ts";
import { kubeletEndpoint } from "../../../src/process/kubelet-address.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeClient, silent } from "../api/fake-client.ts";

const { signal } = new AbortController();
const service = { of: "service", service: "kubelet" } as const;

function inPod(answer: () => unknown) {
  const client: ApiClient & AsyncDisposable = {
    ...fakeClient(({ path }) => {
      assert.equal(path, "/api/v1/namespaces/edge/services/kubelet");
      return answer();
    }),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  return { account: { client, namespace: "edge" }, clock: fakeClock(), log: silent };
}

const kubelet = { port: 10_251 };
const asked = { nodeIPs: [], kubeletAddress: service, kubelet };
const leading = [{ port: 10_250, targetPort: 10_251 }];

test("returns the Service's addresses and port unless --node-ip is set, and none if the machine's addresses are used", async () => {
  const clusterIPs = ["10.0.0.9", "fd00::9"];
  const deps = inPod(() => ({
    metadata: { name: "kubelet" },
    spec: { clusterIPs, ports: [{ port: 9, targetPort: 10_251, protocol: "UDP" }, ...leading] },
  }));
  assert.deepEqual(await kubeletEndpoint(asked, deps, signal), { nodeIPs: clusterIPs, port: 10_250 });
  const given = { ...asked, nodeIPs: ["1.2.3.4"] };
  assert.deepEqual(await kubeletEndpoint(given, deps, signal), { nodeIPs: ["1.2.3.4"], port: 10_251 });
  const machines = { ...asked, kubeletAddress: { of: "host" } as const };
  assert.deepEqual(await kubeletEndpoint(machines, deps, signal), { nodeIPs: [], port: 10_251 });
});

test("treats a Service port without targetPort as the same port of the Pod", async () => {
  const deps = inPod(() => ({ metadata: { name: "kubelet" }, spec: { clusterIPs: ["10.0.0.9"], ports: [kubelet] } }));
  assert.deepEqual(await kubeletEndpoint(asked, deps, signal), { nodeIPs: ["10.0.0.9"], port: 10_251 });
});

test("rejects a missing Service, or one without the kubelet API's port, in a sentence", async () => {
  const missing = inPod(() => {
    throw new CodedError("not_found", "no");
  });
  await assert.rejects(kubeletEndpoint(asked, missing, signal), {
    message: 'kubeletService "kubelet" does not exist in namespace edge: create it, or use another',
  });
  const refused = (spec: object) =>
    kubeletEndpoint(
      asked,
      inPod(() => ({ metadata: { name: "kubelet" }, spec })),
      signal,
    );
  await assert.rejects(refused({ clusterIPs: ["None"], ports: leading }), {
    message: 'kubeletService "kubelet" has no address: it must not be headless',
  });
  await assert.rejects(refused({ clusterIPs: ["10.0.0.9"], ports: [{ port: 10_250 }] }), {
    message: 'kubeletService "kubelet" has no port for the kubelet API: add one with targetPort: 10251',
  });
});

test("retries if the API server does not respond", async () => {
  let tries = 0;
  const deps = inPod(() => {
    tries += 1;
    if (tries < 3) throw new CodedError("unavailable", "no answer");
    return { metadata: { name: "kubelet" }, spec: { clusterIPs: ["10.0.0.9"], ports: leading } };
  });
  const found = kubeletEndpoint(asked, deps, signal);
  await deps.clock.advance(4_000);
  assert.deepEqual(await found, { nodeIPs: ["10.0.0.9"], port: 10_250 });
});
