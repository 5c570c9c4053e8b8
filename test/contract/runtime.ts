import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Runtime } from "../../src/seams/runtime.ts";
import { containerContract } from "./runtime-containers.ts";
import { imageContract } from "./runtime-images.ts";
import { type RuntimeUnderTest, patience } from "./runtime-pods.ts";
import { sandboxContract } from "./runtime-sandboxes.ts";
import { streamContract } from "./runtime-streams.ts";

/** What every Runtime means by its operations. @param make gives a runtime without pods; disposed of at the end. */
export function runtimeContract(name: string, make: () => Promise<RuntimeUnderTest>): void {
  describe(`Runtime contract: ${name}`, () => {
    let made: RuntimeUnderTest | undefined;
    before(async () => {
      made = await make();
    });
    after(async () => made?.[Symbol.asyncDispose]());
    const current = (): RuntimeUnderTest => {
      assert.ok(made, "the runtime could not be made");
      return made;
    };
    serviceContract(current);
    sandboxContract(current);
    containerContract(current);
    imageContract(current);
    streamContract(current);
  });
}

function serviceContract(current: () => RuntimeUnderTest): void {
  test("version reports the runtime and CRI v1", async () => {
    const version = await current().runtime.version(patience());
    assert.equal(version.runtimeApiVersion, "v1");
    assert.notEqual(version.runtimeName, "");
    assert.notEqual(version.runtimeVersion, "");
  });

  test("status reports whether runtime and network are ready", async () => {
    const { status } = await current().runtime.status(patience());
    const ready = Object.fromEntries((status?.conditions ?? []).map((condition) => [condition.type, condition.status]));
    assert.deepEqual(
      { RuntimeReady: ready.RuntimeReady, NetworkReady: ready.NetworkReady },
      { RuntimeReady: true, NetworkReady: true },
    );
  });

  test("rejects a call whose signal has aborted as cancelled", async () => {
    const { runtime } = current();
    const calls: ((runtime: Runtime, signal: AbortSignal) => Promise<unknown>)[] = [
      (it, signal) => it.version(signal),
      (it, signal) => it.listContainers(undefined, signal),
      (it, signal) => it.listImages(signal),
      (it, signal) => it.containerStatus("nothing", signal),
    ];
    for (const call of calls) await assert.rejects(call(runtime, AbortSignal.abort()), { code: "cancelled" });
  });
}
