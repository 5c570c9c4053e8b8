import assert from "node:assert/strict";
import { test } from "node:test";
import type { ApiClient } from "../../../src/api/client.ts";
import { kubeletAddresses } from "../../../src/process/kubelet-address.ts";
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

test("a Service's addresses, unless --node-ip says others; none where the machine's are right", async () => {
  const deps = inPod(() => ({ spec: { clusterIPs: ["10.0.0.9", "fd00::9"] } }));
  assert.deepEqual(await kubeletAddresses({ nodeIPs: [], kubeletAddress: service }, deps, signal), [
    "10.0.0.9",
    "fd00::9",
  ]);
  assert.deepEqual(await kubeletAddresses({ nodeIPs: ["1.2.3.4"], kubeletAddress: service }, deps, signal), [
    "1.2.3.4",
  ]);
  assert.deepEqual(await kubeletAddresses({ nodeIPs: [], kubeletAddress: { of: "host" } }, deps, signal), []);
});

test("a Service that is not there, or has no address, is told in a sentence", async () => {
  const missing = inPod(() => {
    throw new CodedError("not_found", "no");
  });
  await assert.rejects(kubeletAddresses({ nodeIPs: [], kubeletAddress: service }, missing, signal), {
    message: 'kubeletService "kubelet" is not in namespace edge: create it, or name another',
  });
  const headless = inPod(() => ({ spec: { clusterIPs: ["None"] } }));
  await assert.rejects(kubeletAddresses({ nodeIPs: [], kubeletAddress: service }, headless, signal), {
    message: 'kubeletService "kubelet" has no address: it must not be headless',
  });
});

test("an API server that does not answer is asked again", async () => {
  let asked = 0;
  const deps = inPod(() => {
    asked += 1;
    if (asked < 3) throw new CodedError("unavailable", "no answer");
    return { spec: { clusterIPs: ["10.0.0.9"] } };
  });
  const found = kubeletAddresses({ nodeIPs: [], kubeletAddress: service }, deps, signal);
  await deps.clock.advance(4_000);
  assert.deepEqual(await found, ["10.0.0.9"]);
});
