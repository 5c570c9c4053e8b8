import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { remoteProviderUnderTest } from "../harness/runtime-daemon.ts";
import { openSlowWay } from "../harness/ssh-way.ts";

/** Milliseconds there and back. The last is for the judgement: what else the machine does weighs little against it. */
const distances = [0, 20, 100, 300] as const;
const farthest = 300;
const repeats = 5;
/** Of what is soon done. */
const manyRepeats = 12;

/** What a user waits for, and how many round trips more than on a near machine it may cost; half a trip is for the machine's
 *  other work. News of an exit is half a trip on its way before anybody can ask. A start takes five (test/unit/sync/round-trips.test.ts),
 *  and one more when commands for other pods are under way. */
const limits = {
  "create to Running": 5 + 1 + 0.5,
  "kubectl exec true": 4 + 0.5,
  "exit to status": 1 + 0.5 + 0.5,
} as const;
type What = keyof typeof limits;

let lab: Lab;
let agent: Agent;

before(async () => {
  lab = await startLab("ssh-trips", { provider: remoteProviderUnderTest() });
  agent = lab.agent;
  await lab.pods.create("talker", {});
  await lab.pods.ready("talker");
});
after(async () => {
  await agent?.[Symbol.asyncDispose]();
  await lab?.[Symbol.asyncDispose]();
});

interface Measured {
  /** Milliseconds; the shortest of some runs, for what else the machine does only adds. */
  readonly ms: number;
  /** Exchanges with the target meanwhile, side by side or one after the other, for this or for anything else; the fewest. */
  readonly exchanges: number;
}

async function measure(once: (turn: number) => Promise<number>, times = repeats): Promise<Measured> {
  const all: Measured[] = [];
  for (let turn = 0; turn < times; turn += 1) {
    const before = exchanges();
    const ms = await once(turn);
    all.push({ ms, exchanges: exchanges() - before });
  }
  return { ms: Math.min(...all.map(({ ms }) => ms)), exchanges: Math.min(...all.map((each) => each.exchanges)) };
}

/** What the counter on the link says: the agent logs it. */
function exchanges(): number {
  return Number([...agent.log().matchAll(/"exchanges":(\d+)/g)].at(-1)?.[1] ?? 0);
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

/** From the last that a container does, beside another that goes on, to the news at the API server. */
async function exitToStatus(name: string): Promise<number> {
  const { pods } = lab;
  const endsSoon = { name: "ends", command: ["sh", "-c", "sleep 2; cat /proc/uptime > /dev/termination-log"] };
  await pods.create(name, { restartPolicy: "Never", containers: [endsSoon, { name: "goes-on" }] });
  const { message } = await new Promise<{ message?: string }>((resolve, reject) => {
    const ended = (pod: Awaited<ReturnType<typeof pods.ready>>) => {
      const terminated = pod.status?.containerStatuses?.find((one) => one.name === "ends")?.state?.terminated;
      if (terminated) resolve(terminated);
      return terminated !== undefined;
    };
    pods.until(name, "one container to end", ended).catch(reject);
  });
  const took = (uptime(readFileSync("/proc/uptime", "utf8")) - uptime(message ?? "")) * 1000;
  await Promise.all([pods.gone(name), pods.remove(name, 0)]);
  return took;
}

/** Seconds that the kernel, which all machines here share, has been up. */
function uptime(text: string): number {
  const seconds = Number(text.split(" ")[0]);
  assert.ok(seconds > 0, `${text} is no uptime`);
  return seconds;
}

describe("a target with a long round-trip time", { timeout: 600_000 }, () => {
  test("user-visible operations take few round trips", async () => {
    const took = new Map<number, Record<What, Measured>>();
    for (const distance of distances) {
      await using way = await openSlowWay(lab.cluster, distance);
      assert.equal(await agent.stop(), true);
      agent = await startGraftlet(lab.cluster, { providerConfig: way.providerConfig, args: ["-v=5"] });
      // What is read once is read, and the shells that commands run in are there.
      await startToRunning(`first-${distance}`);
      const all = {
        "create to Running": await measure((turn) => startToRunning(`far-${distance}-${turn}`)),
        "kubectl exec true": await measure(exec, manyRepeats),
        "exit to status": await measure((turn) => exitToStatus(`ends-${distance}-${turn}`)),
      };
      took.set(distance, all);
      for (const [what, { ms, exchanges: count }] of Object.entries(all))
        console.log(`${distance} ms there and back: ${what} ${Math.round(ms)} ms, ${count} exchanges on the link`);
      assert.equal(await agent.stop(), true);
    }
    for (const [what, limit] of Object.entries(limits) as [What, number][]) {
      const [near, far] = [took.get(0)?.[what].ms ?? Number.NaN, took.get(farthest)?.[what].ms ?? Number.NaN];
      const trips = (far - near) / farthest;
      console.log(`round trips one after the other: ${what} ${trips.toFixed(1)}`);
      assert.ok(trips <= limit, `${what} costs ${trips.toFixed(2)} round trips, more than ${limit}`);
    }
  });
});
