import assert from "node:assert/strict";
import { test } from "node:test";
import { networkOf } from "../../../../providers/ssh/provider.ts";

test("what the configuration says of the network is what the pipeline is told", () => {
  assert.deepEqual(networkOf({ network: "isolated" }), { isolated: true });
  const kubernetesService = { host: "api.example", port: 6443 };
  assert.deepEqual(networkOf({ network: "routed", kubernetesService }), { isolated: false, kubernetesService });
});
