import assert from "node:assert/strict";
import { ContainerState } from "../../src/gen/cri.ts";
import type { Target } from "../../src/seams/provider.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import { never } from "../fakes/signals.ts";
import type { Layout } from "../harness/state.ts";
import { waitFor } from "../harness/wait.ts";
import { type RuntimeUnderTest, patience, podsOf } from "./runtime-pods.ts";

interface Rig extends AsyncDisposable {
  readonly layout: Layout;
}

/** A rig's runtime for the contract, or the target that it belongs to; all are disposed of together. */
export function onRig<Kind extends Rig>(
  rig: Kind,
  owner: Runtime | Pick<Target, "runtime" | typeof Symbol.asyncDispose>,
): RuntimeUnderTest & { readonly rig: Kind } {
  return {
    rig,
    runtime: "runtime" in owner ? owner.runtime : owner,
    image: "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
    missingImage: "registry.k8s.io/contract/no-such:1",
    logDirectory: rig.layout.podLogs,
    async [Symbol.asyncDispose]() {
      await owner[Symbol.asyncDispose]();
      await rig[Symbol.asyncDispose]();
    },
  };
}

/** A runtime that is killed: calls fail at once and the event stream breaks. Once it is back calls work within two seconds,
 *  and what ran has run on. */
export async function killedContract(
  made: RuntimeUnderTest,
  daemon: { readonly kill: () => Promise<void>; readonly start: () => Promise<void> },
): Promise<void> {
  const { runtime } = made;
  await using pods = podsOf(made);
  const { containerId } = await pods.runOne(["sleep", "3600"]);
  const startedAt = await startOf(runtime, containerId);
  const events = runtime.events?.(never)[Symbol.asyncIterator]();
  assert.deepEqual(await events?.next(), { done: false, value: { kind: "listening" } });
  // Some runtimes tell first what happened before they were listened to.
  const broken = assert.rejects(
    async () => {
      while (!(await events?.next())?.done);
    },
    { code: "unavailable" },
  );
  await daemon.kill();
  await broken;
  const asked = performance.now();
  await assert.rejects(runtime.version(patience()), { code: "unavailable" });
  assert.ok(performance.now() - asked < 3000, "fails fast");
  await daemon.start();
  const back = performance.now();
  await waitFor("the runtime to answer", () => runtime.containerStatus(containerId, patience()), {
    timeoutMs: 60_000,
    everyMs: 20,
  });
  // Two seconds, on a machine that is not busy; a channel that is not told to hurry waits up to two minutes.
  assert.ok(performance.now() - back < 10_000, `answered after ${Math.round(performance.now() - back)} ms`);
  assert.equal(await startOf(runtime, containerId), startedAt);
}

async function startOf(runtime: Runtime, containerId: string): Promise<bigint | undefined> {
  const { status } = await runtime.containerStatus(containerId, patience());
  assert.equal(status?.state, ContainerState.CONTAINER_RUNNING);
  return status.startedAt;
}
