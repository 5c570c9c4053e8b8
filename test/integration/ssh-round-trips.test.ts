import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { remoteProviderUnderTest } from "../harness/runtime-daemon.ts";
import { openSlowWay } from "../harness/ssh-way.ts";

/** Milliseconds there and back. */
const distances = [0, 20, 100] as const;
const repeats = 5;

let lab: Lab;
let agent: Agent;

before(async () => {
  lab = await startLab("ssh-trips", { provider: remoteProviderUnderTest() });
  agent = lab.agent;
  // The image is there, and the shells that commands run in.
  await lab.pods.create("talker", {});
  await lab.pods.ready("talker");
});
after(async () => {
  await agent?.[Symbol.asyncDispose]();
  await lab?.[Symbol.asyncDispose]();
});

/** The shortest of some runs, ms: what else the machine does only adds. */
async function shortest(once: (turn: number) => Promise<number>): Promise<number> {
  const all: number[] = [];
  for (let turn = 0; turn < repeats; turn += 1) all.push(await once(turn));
  return Math.min(...all);
}

async function startToRunning(name: string): Promise<number> {
  const { pods } = lab;
  const began = performance.now();
  await pods.create(name, {});
  await pods.until(name, "to run", ({ status }) => status?.phase === "Running");
  const took = performance.now() - began;
  await Promise.all([pods.gone(name), pods.remove(name, 0)]);
  return took;
}

async function exec(): Promise<number> {
  const began = performance.now();
  await lab.cluster.mustKubectl(["exec", "talker", "--", "true"]);
  return performance.now() - began;
}

describe("a target that is far away", { timeout: 300_000 }, () => {
  test("what a user waits for grows by few round trips", async () => {
    const took = new Map<number, { readonly running: number; readonly exec: number }>();
    for (const distance of distances) {
      await using way = await openSlowWay(lab.cluster, distance);
      assert.equal(await agent.stop(), true);
      agent = await startGraftlet(lab.cluster, { providerConfig: way.providerConfig });
      const running = await shortest((turn) => startToRunning(`far-${distance}-${turn}`));
      took.set(distance, { running, exec: await shortest(exec) });
      assert.equal(await agent.stop(), true);
    }
    const near = took.get(0);
    const far = took.get(100);
    assert.ok(near && far);
    for (const [distance, { running, exec: command }] of took)
      console.log(
        `${distance} ms there and back: create to Running ${Math.round(running)} ms, kubectl exec true ${Math.round(command)} ms`,
      );
    const trips = { running: (far.running - near.running) / 100, exec: (far.exec - near.exec) / 100 };
    console.log(
      `round trips: create to Running ${trips.running.toFixed(1)}, kubectl exec true ${trips.exec.toFixed(1)}`,
    );
    // What it takes today, twice over for a machine that has other things to do: more is a step back.
    assert.ok(trips.running < 100 && trips.exec < 20);
  });
});
