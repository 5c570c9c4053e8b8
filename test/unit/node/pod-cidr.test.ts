import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { createPodCidr } from "../../../src/node/pod-cidr.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import type { Node } from "../../../src/objects.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { never } from "../../fakes/signals.ts";
import { silent } from "../api/fake-client.ts";

function start(podCIDRs?: readonly string[], hangs = false) {
  const clock = fakeClock();
  const told: string[] = [];
  const listeners = new Set<(node: Node | undefined) => void>();
  const nodeWith = (cidrs?: readonly string[]): Node => ({
    metadata: { name: "n" },
    ...(cidrs && { spec: { podCIDRs: [...cidrs] } }),
  });
  let node = nodeWith(podCIDRs);
  let down = false;
  const service = createPodCidr({
    nodes: {
      node: () => node,
      onChange(listener) {
        listeners.add(listener);
        return () => void listeners.delete(listener);
      },
    },
    runtime: {
      async updateRuntimeConfig({ runtimeConfig }, signal) {
        if (down) throw new CodedError("unavailable", "no daemon");
        if (hangs) return untilAborted(new Promise<void>(() => undefined), signal);
        told.push(runtimeConfig?.networkConfig?.podCidr ?? "");
      },
    },
    clock,
    log: silent,
  });
  const stop = new AbortController();
  const running = service.run(stop.signal);
  return {
    clock,
    told,
    service,
    listeners,
    setDown: (value: boolean) => void (down = value),
    setCidrs(...cidrs: string[]) {
      node = nodeWith(cidrs);
      for (const listener of listeners) listener(node);
    },
    async stop() {
      stop.abort();
      await running;
    },
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await running;
    },
  };
}

test("passes the pod CIDR to the runtime once, before the service is ready", async () => {
  await using t = start(["10.1.0.0/24", "fd00::/64"]);
  await t.service.ready?.(never);
  assert.deepEqual(t.told, ["10.1.0.0/24,fd00::/64"]);
  t.setCidrs("10.1.0.0/24", "fd00::/64");
  await t.clock.advance(60_000);
  assert.deepEqual(t.told, ["10.1.0.0/24,fd00::/64"]);
});

test("passes nothing until the node has a pod CIDR", async () => {
  await using t = start();
  await t.clock.advance(60_000);
  assert.deepEqual(t.told, []);
  t.setCidrs("10.2.0.0/24");
  await t.clock.advance(0);
  assert.deepEqual(t.told, ["10.2.0.0/24"]);
});

test("retries until the runtime accepts the pod CIDR", async () => {
  await using t = start();
  t.setDown(true);
  t.setCidrs("10.2.0.0/24");
  await t.clock.advance(0);
  t.setDown(false);
  await t.clock.advance(5_000);
  assert.deepEqual(t.told, ["10.2.0.0/24"]);
});

test("delays the start by at most ten seconds for a runtime that does not answer", async () => {
  await using t = start(["10.2.0.0/24"], true);
  let ready = false;
  void t.service.ready?.(never).then(() => (ready = true));
  await t.clock.advance(9_000);
  assert.equal(ready, false);
  await t.clock.advance(1_000);
  assert.equal(ready, true);
});

test("removes its listener when stopped", async () => {
  const t = start(["10.1.0.0/24"]);
  await t.clock.advance(0);
  await t.stop();
  assert.equal(t.listeners.size, 0);
});
