import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { createPodCidr } from "../../../src/node/pod-cidr.ts";
import type { Node } from "../../../src/objects.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { silent } from "../api/fake-client.ts";

function start(podCIDRs?: readonly string[]) {
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
      async updateRuntimeConfig({ runtimeConfig }) {
        if (down) throw new CodedError("unavailable", "no daemon");
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

test("the runtime is told what the node has, before the service is ready, and once", async () => {
  await using t = start(["10.1.0.0/24", "fd00::/64"]);
  await t.service.ready?.(new AbortController().signal);
  assert.deepEqual(t.told, ["10.1.0.0/24,fd00::/64"]);
  t.setCidrs("10.1.0.0/24", "fd00::/64");
  await t.clock.advance(60_000);
  assert.deepEqual(t.told, ["10.1.0.0/24,fd00::/64"]);
});

test("a node without addresses for pods says nothing until it gets some", async () => {
  await using t = start();
  await t.clock.advance(60_000);
  assert.deepEqual(t.told, []);
  t.setCidrs("10.2.0.0/24");
  await t.clock.advance(0);
  assert.deepEqual(t.told, ["10.2.0.0/24"]);
});

test("a runtime that cannot be told is told when it is back", async () => {
  await using t = start();
  t.setDown(true);
  t.setCidrs("10.2.0.0/24");
  await t.clock.advance(0);
  t.setDown(false);
  await t.clock.advance(5_000);
  assert.deepEqual(t.told, ["10.2.0.0/24"]);
});

test("stopping leaves no listener", async () => {
  const t = start(["10.1.0.0/24"]);
  await t.clock.advance(0);
  await t.stop();
  assert.equal(t.listeners.size, 0);
});
