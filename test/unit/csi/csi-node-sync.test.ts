import assert from "node:assert/strict";
import { test } from "node:test";
import { createCsiNodes } from "../../../src/csi/csi-node.ts";
import { createCsiNodeSync } from "../../../src/csi/csi-node-sync.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import type { Node } from "../../../src/objects.ts";
import { waitFor } from "../../harness/wait.ts";
import { silent } from "../api/fake-client.ts";
import { apiServer } from "./api.ts";
import { topologyRule } from "../../../src/csi/topology.ts";

const until = (what: string, poll: () => boolean) => waitFor(what, poll, { everyMs: 5, timeoutMs: 20_000 });
const facts = { nodeID: "id-1", maxVolumes: 0n, topology: {} };

test("the node is not ready until its CSINode exists; a replaced Node gets a new CSINode with all drivers", async () => {
  const api = apiServer();
  api.failures.push(...Array.from({ length: 4 }, () => new CodedError("permission_denied", "not yours")));
  const clock = systemClock();
  const listeners = new Set<(node: Node | undefined) => void>();
  let shown: Node | undefined;
  const told: (string | undefined)[] = [];
  const published = createCsiNodeSync({
    csiNodes: createCsiNodes({ client: api.client, nodeName: "n", mayLabel: topologyRule(["zone", "rack"]), clock }),
    drivers: { facts: () => new Map([["d", facts]]) },
    nodes: {
      node: () => shown,
      onChange(listener) {
        listeners.add(listener);
        return () => void listeners.delete(listener);
      },
    },
    onChange: () => void told.push(published.problem()),
    clock,
    log: silent,
  });
  const ending = new AbortController();
  const running = published.run(ending.signal);
  assert.equal(published.problem(), "CSINode is not yet initialized");
  const show = (node: Node) => {
    shown = node;
    for (const listener of listeners) listener(node);
  };
  show(api.node);
  await until("the CSINode", () => published.problem() === undefined);
  assert.deepEqual(told, [
    "failed to initialize CSINode: error updating CSINode annotation: timed out waiting for the condition; caused by: not yours",
    undefined,
  ]);
  assert.equal(api.csiNode?.metadata.ownerReferences?.[0]?.uid, "u1");
  api.node = { metadata: { name: "n", uid: "u2" } };
  show(api.node);
  await until("the drivers in the other's CSINode", () => api.csiNode?.spec.drivers?.length === 1);
  assert.equal(api.csiNode?.metadata.ownerReferences?.[0]?.uid, "u2");
  ending.abort();
  await running;
});
