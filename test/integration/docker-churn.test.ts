import assert from "node:assert/strict";
import { readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { after, before, describe, test } from "node:test";
import { type DockerLab, startDockerLab } from "../harness/docker-lab.ts";
import { dockerTraces } from "../harness/docker-traces.ts";
import { heapOf, heapReporting } from "../harness/heap.ts";
import { gained, holdings, memoryOf } from "../harness/holdings.ts";
import { particulars } from "../harness/particulars.ts";
import { isNotFound } from "../harness/pods.ts";
import { whole } from "../matrix.ts";

/** Pods a second that are wanted, for so many seconds. */
const rate = Number(process.env.GRAFTLET_CHURN_RATE ?? 2);
const seconds = Number(process.env.GRAFTLET_CHURN_SECONDS ?? (whole ? 60 : 30));
/** Where the machine cannot keep the rate, so many are under way at most. */
const mostAtOnce = Math.max(8, 4 * rate);
/** What is alive in graftlet once garbage has been collected may grow by so much from the end of the first third, MiB. */
const mostAlive = 8;
/** Resident memory may by so much: V8 and Go keep what they collected for a while. */
const mostResident = 64;
const heapReport = join(tmpdir(), `graftlet-heap-${process.pid}.json`);

// Pods come and go; half of them are deleted before they run. Afterwards nothing of them is anywhere.
describe(`starts and deletes ${rate} pods a second for ${seconds} s`, { timeout: (seconds + 300) * 1000 }, () => {
  let lab: DockerLab;
  before(async () => {
    lab = await startDockerLab("engine-churn", { env: heapReporting(heapReport) });
  });
  after(async () => {
    await lab?.[Symbol.asyncDispose]();
    rmSync(heapReport, { force: true });
  });

  test("leaks no container, network, mount, cgroup, file, process, descriptor or memory", async (t) => {
    const { agent, cluster, engine, pods } = lab;
    await Promise.all(Array.from({ length: 4 }, (_, index) => live(lab, `warm-${index}`, index)));
    await untilEmpty(lab);
    const [traces, held, dockerdFiles] = [
      await dockerTraces(cluster, engine),
      holdings(agent.pid),
      readdirSync(`/proc/${engine.pid()}/fd`).length,
    ];

    const total = Math.round(rate * seconds);
    const began = performance.now();
    const underWay = new Set<Promise<void>>();
    const measure = async () => ({ ...(await heapOf(agent, heapReport)), dockerd: memoryOf(engine.pid()).now });
    let warm: ReturnType<typeof measure> | undefined;
    let created = 0;
    while (created < total && performance.now() - began < seconds * 1000) {
      while (underWay.size >= mostAtOnce) await Promise.race(underWay);
      const index = created++;
      const life = live(lab, `churn-${index}`, index).finally(() => underWay.delete(life));
      underWay.add(life);
      if (performance.now() - began > (seconds * 1000) / 3) warm ??= measure();
      await sleep(Math.max(0, began + (created / rate) * 1000 - performance.now()));
    }
    await Promise.all(underWay);
    const lasted = (performance.now() - began) / 1000;
    t.diagnostic(`${created} pods in ${lasted.toFixed(0)} s: ${(created / lasted).toFixed(2)} a second`);

    await untilEmpty(lab);
    await cluster.waitFor(
      "nothing to be left of the pods",
      async () => gained(traces, await dockerTraces(cluster, engine)).length === 0,
      {
        timeoutMs: 90_000,
        everyMs: 1000,
        explain: async () =>
          gained(traces, await dockerTraces(cluster, engine))
            .slice(0, 40)
            .join("\n"),
      },
    );
    await cluster.waitFor(
      "graftlet to hold nothing more than before",
      () => gained(held, holdings(agent.pid)).length <= particulars.docker.ownLines,
      {
        explain: () => gained(held, holdings(agent.pid)).join("\n"),
      },
    );
    const dockerdHas = () => readdirSync(`/proc/${engine.pid()}/fd`).length;
    await cluster.waitFor("dockerd to hold no more than before", () => dockerdHas() <= dockerdFiles + 4, {
      explain: () => `dockerd had ${dockerdFiles} descriptors and has ${dockerdHas()}`,
    });

    const [before, after] = [await warm, await measure()];
    assert.ok(before, "memory was not measured");
    t.diagnostic(
      `MiB after a third: ${JSON.stringify(rounded(before))}, at the end: ${JSON.stringify(rounded(after))}`,
    );
    assert.ok(after.live - before.live <= mostAlive, `${after.live - before.live} MiB more are alive in graftlet`);
    assert.ok(after.rss - before.rss <= mostResident, `graftlet grew by ${after.rss - before.rss} MiB`);
    assert.ok(after.dockerd - before.dockerd <= mostResident, `dockerd grew by ${after.dockerd - before.dockerd} MiB`);
    assert.deepEqual((await pods.api.get<{ items: unknown[] }>("/api/v1/pods")).items, []);
  });
});

/** One pod from its creation to its end: every other one is deleted while it starts, every other one at once. */
async function live({ pods }: DockerLab, name: string, index: number): Promise<void> {
  await pods.create(name, {});
  if (index % 2 === 0) await pods.until(name, "to run", ({ status }) => status?.phase === "Running", 120_000);
  else await sleep(((index * 137) % 20) * 100);
  const gone = pods.gone(name);
  await pods.remove(name, Math.floor(index / 2) % 2).catch((error: unknown) => {
    if (!isNotFound(error)) throw error;
  });
  await gone;
}

/** Waits until neither the API server nor the daemon has a pod. */
async function untilEmpty({ cluster, engine, pods }: DockerLab): Promise<void> {
  const left = async () => [
    ...(await pods.api.get<{ items: { metadata: { name: string } }[] }>("/api/v1/pods")).items.map(
      ({ metadata }) => metadata.name,
    ),
    ...(await engine.containers()).map(({ Names, State }) => `${Names.join(" ")} ${State}`),
  ];
  await cluster.waitFor("all pods and their containers to be gone", async () => (await left()).length === 0, {
    timeoutMs: 90_000,
    everyMs: 500,
    explain: async () => (await left()).join("\n"),
  });
}

function rounded(values: object): Record<string, number> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Math.round(Number(value))]));
}
