import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { createChance } from "../harness/chance.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type Invariants, createInvariants } from "../harness/invariants.ts";
import { openPods, type Pods, shell, type SpecDraft, statusOf } from "../harness/pods.ts";
import { whole } from "../matrix.ts";

const kills = whole ? 40 : 20;
const named = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `${prefix}-${index}`);

// GRAFTLET_CHAOS_SEED=N has the same things happen again, as far as the machine's own chance allows.
describe(`graftlet killed ${kills} times at random while pods start, crash and terminate`, { timeout: 600_000 }, () => {
  const chance = createChance();
  const steady = named("steady", 6);
  const crashing = named("crashing", 4);
  let cluster: Cluster;
  let agent: Agent | undefined;
  let pods: Pods;
  let invariants: Invariants;
  let runs: string;

  /** A pod of which each start of its container leaves a line behind. */
  const counted = (name: string, script: string, spec: SpecDraft = {}): SpecDraft => ({
    volumes: [
      { name: "runs", hostPath: { path: runs } },
      { name: "scratch", emptyDir: { medium: "Memory" } },
      {
        name: "settings",
        projected: { sources: [{ secret: { name: "settings" } }, { configMap: { name: "settings" } }] },
      },
    ],
    ...spec,
    containers: [
      shell(`echo started >> /runs/${name}; ${script}`, {
        volumeMounts: ["runs", "scratch", "settings"].map((volume) => ({ name: volume, mountPath: `/${volume}` })),
      }),
    ],
  });
  const startsOf = (name: string): number =>
    existsSync(join(runs, name)) ? readFileSync(join(runs, name), "utf8").trim().split("\n").length : 0;
  const start = async () => {
    agent = await startGraftlet(cluster, { args: ["-v=4"], untilReady: false });
  };

  before(async () => {
    cluster = await startCluster({ name: "chaos-kill" });
    runs = join(cluster.layout.dir, "runs");
    mkdirSync(runs);
    invariants = createInvariants(cluster);
    pods = await openPods(cluster);
    await start();
    await cluster.apply([
      { apiVersion: "v1", kind: "Secret", metadata: { name: "settings" }, stringData: { key: "value" } },
      { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "settings" }, data: { other: "value" } },
    ]);
    const { nodeName } = cluster;
    await Promise.all([
      ...steady.map((name) => pods.create(name, { nodeName, ...counted(name, "exec sleep infinity") })),
      ...crashing.map((name) => pods.create(name, { nodeName, ...counted(name, "sleep 1; exit 3") })),
    ]);
    await Promise.all(steady.map((name) => pods.ready(name)));
  });
  after(async () => {
    await invariants?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  // The runtime gives up a start that a kill has cut off. One that ran nothing is made again. Where the container may have run, it is
  // begun again unless it is a task, whose status says so. Both return how often that was.
  const cutOffsOfStaying = (name: string): number => {
    const pod = pods.history(name).at(-1);
    const { restartCount = 0, lastState } = (pod && statusOf(pod)) ?? {};
    const again = lastState?.terminated?.reason === "StartError" ? restartCount : 0;
    const starts = startsOf(name);
    assert.ok(starts >= 1 && starts <= 1 + again, `${name} ran ${starts} times, ${again} of them cut off`);
    return again;
  };
  const cutOffsOfTask = (name: string, pod: Pod, exitsWith: number): number => {
    const { reason, exitCode, message = "" } = statusOf(pod)?.state?.terminated ?? {};
    const cutOff = reason === "StartError" && message.endsWith("the container, which may have run");
    const starts = startsOf(name);
    assert.ok(starts <= 1 && (cutOff || starts === 1), `task ${name} ran ${starts} times, ${reason}: ${message}`);
    assert.equal(exitCode, cutOff ? 128 : exitsWith, name);
    assert.equal(pod.status?.phase, exitCode === 0 ? "Succeeded" : "Failed", name);
    return cutOff ? 1 : 0;
  };

  test("leaves running containers alone, starts nothing twice, leaves nothing behind, and reports every exit", async (t) => {
    t.diagnostic(`GRAFTLET_CHAOS_SEED=${chance.seed}`);
    const standing = await invariants.standing(...steady);
    const staying = new Set<string>();
    const leaving = new Set<string>();
    const tasks = new Map<string, number>();
    let made = 0;
    const comes = async () => {
      const name = `comes-${made++}`;
      const { nodeName } = cluster;
      if (chance.between(0, 1) < 0.4) {
        const exitCode = chance.pick([0, 0, 5]);
        tasks.set(name, exitCode);
        const script = `sleep ${chance.between(0, 3).toFixed(1)}; exit ${exitCode}`;
        await pods.create(name, { nodeName, restartPolicy: "Never", ...counted(name, script) });
      } else {
        staying.add(name);
        // It ends in peace, or only by force.
        const script = chance.pick([
          "exec sleep infinity",
          "trap 'exit 0' TERM; sleep 3600 & wait",
          "trap '' TERM; sleep 3600 & wait",
        ]);
        await pods.create(name, { nodeName, terminationGracePeriodSeconds: 2, ...counted(name, script) });
      }
    };
    const goes = async () => {
      const name = chance.pick([...staying]);
      staying.delete(name);
      leaving.add(name);
      await pods.remove(name);
    };

    for (let count = 0; count < kills; count++) {
      if (staying.size < 3 || (staying.size < 10 && chance.between(0, 1) < 0.5)) await comes();
      else await goes();
      // As often while it starts as while it works.
      const pause = 300 * 10 ** chance.between(0, 1);
      await new Promise((resolve) => setTimeout(resolve, pause));
      await agent?.kill("SIGKILL");
      await start();
    }

    await Promise.all([...staying].map((name) => pods.ready(name)));
    const ends = new Map(
      await Promise.all(
        [...tasks.keys()].map(async (name) => {
          const ended = ({ status }: Pod) => status?.phase === "Succeeded" || status?.phase === "Failed";
          return [name, await pods.until(name, "to have ended", ended)] as const;
        }),
      ),
    );
    await cluster.waitFor("what was deleted to be gone", async () => {
      const left = await Promise.all([...leaving].map((name) => cluster.get("pod", name)));
      return left.every((pod) => pod === undefined);
    });
    await invariants.hold(standing);
    t.diagnostic(`${made} pods came, ${leaving.size} went, ${tasks.size} were tasks`);
    assert.deepEqual(
      steady.filter((name) => startsOf(name) !== 1),
      [],
      "started once, and never again",
    );
    let cutOffs = 0;
    for (const name of staying) cutOffs += cutOffsOfStaying(name);
    for (const [name, pod] of ends) cutOffs += cutOffsOfTask(name, pod, tasks.get(name) ?? 0);
    assert.ok(cutOffs <= kills / 4, `${cutOffs} starts were cut off by ${kills} kills`);
    // A start that a kill has cut off is told without having run; one that ran and is never told would be lost.
    for (const name of crashing)
      await cluster.waitFor(`all starts of ${name} to be told`, async () => {
        const pod = pods.history(name).at(-1);
        const { state, restartCount } = (pod && statusOf(pod)) ?? {};
        const between = state?.terminated !== undefined || state?.waiting?.reason === "CrashLoopBackOff";
        return between && startsOf(name) <= (restartCount ?? 0) + 1;
      });
  });
});
