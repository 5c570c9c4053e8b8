import assert from "node:assert/strict";
import type { Node, Pod } from "../../../src/objects.ts";
import type { Cluster } from "../../harness/cluster.ts";
import { inNamespace } from "./release.ts";

/** Changes the template of the pool with two members: their nodes restart in turn, and their pods run on. */
export async function rollOut(cluster: Cluster, explain: () => Promise<string>): Promise<void> {
  const container = async () => (await cluster.get<Pod>("pod", "on-edge-6"))?.status?.containerStatuses?.[0];
  const before = await container();
  const spec = { template: { kubeletConfiguration: { maxPods: 77 } }, disruption: { maxUnavailable: 1 } };
  await cluster.mustKubectl([
    "patch",
    "gnp",
    "edge",
    inNamespace,
    "--type=merge",
    `--patch=${JSON.stringify({ spec })}`,
  ]);
  const restarting = "{.status.updatedReplicas} {.status.conditions[0].reason}";
  await cluster.waitFor(
    "one node to run with the template, and the other not yet",
    async () =>
      (await cluster.mustKubectl(["get", "gnp", "edge", inNamespace, `--output=jsonpath=${restarting}`])) ===
      "1 Progressing",
    { explain },
  );
  const done = ["wait", "--for=condition=RolledOut", "gnp/edge", inNamespace, "--timeout=100s"];
  await cluster.mustKubectl(done, { timeoutMs: 110_000 });
  for (const name of ["edge-5", "edge-6"])
    assert.equal((await cluster.get<Node>("node", name))?.status?.capacity?.["pods"], "77", name);
  const { containerID, restartCount } = (await container()) ?? {};
  assert.deepEqual([containerID, restartCount], [before?.containerID, before?.restartCount]);
}
