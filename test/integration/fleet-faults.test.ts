import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createChance } from "../harness/chance.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { graftedMachine, podOn } from "./helm/grafted-machine.ts";
import { inNamespace } from "./helm/release.ts";
import { type ChurnDriver, startChurnDriver } from "./helm/churn-driver.ts";
import { churnKinds } from "./helm/churn-kinds.ts";
import { churnPods } from "./helm/replica-churn.ts";
import { rollOutAndBack, versionToStart, waiting } from "./helm/other-version.ts";
import { type ReplicaFault, replicaFaults } from "./helm/replica-faults.ts";
import { watchReplicas } from "./helm/replica-watch.ts";
import { type Replicas, replicasOf } from "./helm/replicas.ts";

const minutes = Number(process.env.GRAFTLET_FLEET_MINUTES ?? 3);
const count = Number(process.env.GRAFTLET_FLEET_MACHINES ?? 6);
/** Faults of a short run end sooner. */
const longestSeconds = minutes < 10 ? 35 : 300;
const machines = Array.from({ length: count }, (_, index) => `edge-${index + 1}`);
/** How long machines may take to be served again after a fault, beside other tests, milliseconds. */
const recoveryMs = 120_000;
/** Another checkout, of which a further replica runs. */
const other = process.env.GRAFTLET_FLEET_OTHER;
const say = (line: string): void => console.error(`fleet: ${line}`);

// One fault after another, drawn by chance. Whatever happens, containers run on.
describe(`replicas with faults for ${minutes} minutes`, { timeout: minutes * 60_000 + 1_200_000 }, () => {
  let lab: HelmLab;
  let shared: Replicas;
  let driver: ChurnDriver;

  before(async () => {
    lab = await startHelmLab("fleet-faults", { other, say });
    shared = replicasOf(lab, machines);
    const values = ["--set=fleet.enabled=true", "--set=fleet.nodeNames={edge-*}", "--set=replicas=3"];
    await lab.mustHelm(["install", release.name, ...versionToStart(other), inNamespace, ...waiting, ...values]);
    for (const name of machines) await lab.cluster.apply([graftedMachine(lab.edge, name), podOn(name)]);
    await shared.untilShared(() => true, 120_000 + count * 5_000);
    for (const name of machines)
      await lab.cluster.mustKubectl(["wait", "--for=condition=Ready", `pod/on-${name}`, "--timeout=55s"]);
    if (other !== undefined) await rollOutAndBack(lab, shared, { machines, values, say });
    driver = await startChurnDriver(lab, machines[0] ?? "");
  });
  after(async () => {
    await driver?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  test("no container restarts, no epoch decreases, no Node becomes Unknown, no machine is without an owner, and pods come and go", async () => {
    const chance = createChance();
    say(`seed ${chance.seed}`);
    const running = await shared.containers();
    using watch = watchReplicas(lab, shared);
    // Of a sequence of its own: how many pods there will be depends on the time that they take.
    const churned = churnKinds(lab.cluster, driver);
    const churn = churnPods(lab, machines, churned, createChance(chance.seed + 1));
    const began = performance.now();
    const faults = replicaFaults(lab, shared, chance, longestSeconds);
    let rounds = 0;
    // Each of them once, and then by chance.
    const drawn = faults.toSorted(() => chance.between(-1, 1));
    while (performance.now() - began < minutes * 60_000) {
      await undergo(drawn[rounds] ?? chance.pick(faults));
      rounds += 1;
    }
    const { ended, failures } = await churn.stop();
    const { epochs, looks } = watch.seen();
    const kinds = Map.groupBy(ended.values(), (kind) => kind);
    const pods = [...kinds].map(([kind, { length }]) => `${length} ${kind}`).join(", ");
    say(`${rounds} faults, ${epochs} epochs on the machines, ${looks} looks; pods that came and went: ${pods}`);
    assert.deepEqual(failures, []);
    assert.ok(ended.size > rounds, `only ${ended.size} pods came and went`);
    assert.equal(kinds.size, churned.length, pods);
    assert.deepEqual(
      driver.names(),
      [...ended].filter(([, kind]) => kind === "stored").map(([name]) => name),
    );
    assert.deepEqual(await driver.mounts(), []);
    assert.ok(epochs >= machines.length + 2, `only ${epochs} epochs were seen`);
    assert.ok(looks > 10, `only ${looks} looks`);

    async function undergo({ name, lasts, isClustersOwn = false, begin }: ReplicaFault): Promise<void> {
      const seconds = chance.between(...lasts);
      if (isClustersOwn) watch.pause();
      const end = await begin();
      try {
        await sleep(seconds * 1_000);
      } finally {
        await end();
      }
      const ended = performance.now();
      await shared.untilShared(() => true, recoveryMs);
      for (const machine of machines) await shared.untilAnswers(machine);
      const took = ((performance.now() - ended) / 1_000).toFixed(1);
      say(`${name}${seconds > 0 ? ` (${seconds.toFixed(0)} s)` : ""}: all machines answered ${took} s after its end`);
      watch.resume();
      assert.deepEqual(await shared.containers(), running, name);
      assert.deepEqual(watch.violations(), [], name);
      // The next one does not find the replicas in the middle of their distribution each time.
      await sleep(chance.between(0, 10_000));
    }
  });
});
