import assert from "node:assert/strict";
import { test } from "node:test";
import type { ApiClient } from "../../../src/api/client.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { createFailureReporter } from "../../../src/node/unreachable.ts";
import type { Node, NodeCondition } from "../../../src/objects.ts";
import type { LinkTrouble } from "../../../src/seams/provider.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";

/** Message of the Node's Ready condition after a report, given the previous condition. */
async function reported(
  before: Partial<NodeCondition>,
  trouble: LinkTrouble,
  isStillOwner?: () => Promise<boolean>,
): Promise<string> {
  const conditions: NodeCondition[] = [{ type: "Ready", status: "False", reason: "KubeletNotReady", ...before }];
  let written: readonly NodeCondition[] = [];
  const client: Pick<ApiClient, "get" | "patch"> = {
    get: async <T>() => ({ metadata: { name: "n" }, status: { conditions } }) satisfies Node as T,
    patch: async <T>(_path: string, { body }: { readonly body: unknown }) => {
      written = (body as Node).status?.conditions ?? [];
      return body as T;
    },
  };
  const reporter = createFailureReporter({
    client: client as ApiClient,
    identity: { nodeName: "n", labels: {}, annotations: {}, taints: [], providerID: "" },
    registerNode: true,
    isStillOwner,
    clock: fakeClock(),
    log: silentLog(),
  });
  await reporter.report(trouble, never);
  return written.map(({ status, reason, message }) => `${status} ${reason} ${message}`).join();
}

const down: LinkTrouble = { reason: "LinkDown", message: "it does not answer." };

test("keeps a reported shutdown as the reason while the target is unreachable, and reports other failures", async () => {
  const last = { message: "node is shutting down" };
  assert.equal(await reported(last, down), "False KubeletNotReady node is shutting down");
  const mistaken: LinkTrouble = { reason: "HostKeyMismatch", message: "another key" };
  assert.equal(await reported(last, mistaken), "False HostKeyMismatch another key");
  assert.equal(await reported({ message: "something else" }, down), "False LinkDown it does not answer.");
  assert.equal(await reported({ ...last, status: "True" }, down), "False LinkDown it does not answer.");
});

test("reports nothing once another process serves the node, or while that cannot be found out", async () => {
  const left = { status: "True" as const };
  assert.equal(await reported(left, down, async () => true), "False LinkDown it does not answer.");
  assert.equal(await reported(left, down, async () => false), "");
  assert.equal(await reported(left, down, () => Promise.reject(new Error("no API server"))), "");
});
