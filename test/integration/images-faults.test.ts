import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { endsWhileAllHangs } from "../harness/hangs.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { images, statusOf } from "../harness/pods.ts";

let lab: Lab;
let registry: ChildProcess;
let address: string;

before(async () => {
  lab = await startLab("images-faults");
  const program = join(import.meta.dirname, "..", "harness", "faulty-registry.ts");
  registry = lab.cluster.spawnInside([process.execPath, program], { stdio: ["ignore", "pipe", "inherit"] });
  if (!registry.stdout) throw new Error("the registry has no standard output");
  const { value } = await createInterface({ input: registry.stdout })[Symbol.asyncIterator]().next();
  address = `127.0.0.1:${value}`;
});
after(async () => {
  if (registry) {
    const ended = once(registry, "exit");
    if (registry.kill("SIGKILL")) await ended;
  }
  await lab?.[Symbol.asyncDispose]();
});

describe("a faulty registry", { timeout: 600_000 }, () => {
  test("a registry that never answers blocks no other pull, and its pod can be deleted", async () => {
    const { pods } = lab;
    await pods.create("hanging", { containers: [{ image: `${address}/hanging:1` }] });
    await pods.event("hanging", "Pulling", `Pulling image "${address}/hanging:1"`);
    await pods.create("other", { containers: [{ image: images.busybox, imagePullPolicy: "Always" }] });
    await pods.ready("other");
    const waiting = await pods.until("hanging", "to wait", (pod) => statusOf(pod)?.state?.waiting !== undefined);
    assert.equal(statusOf(waiting)?.state?.waiting?.reason, "ContainerCreating");
    const gone = pods.gone("hanging");
    await pods.remove("hanging");
    await gone;
  });

  test("reports each fault as a failed pull, and retries with back-off", async () => {
    const { pods } = lab;
    const names = ["unauthorized", "limited", "broken", "torn", "other"];
    const faulty: readonly (readonly [string, string])[] = [
      ...names.map((name) => [name, `${address}/${name}:1`] as const),
      // Nobody listens there.
      ["down", "127.0.0.1:1/down:1"],
    ];
    await Promise.all(faulty.map(([name, image]) => pods.create(`faulty-${name}`, { containers: [{ image }] })));
    await pods.create("meanwhile", { containers: [{ image: images.busybox, imagePullPolicy: "Always" }] });
    await pods.ready("meanwhile");
    const isToldOf = async (pod: string, image: string) => {
      // Docker gives up a torn layer after five attempts, more than a minute.
      const backedOff = await pods.until(
        pod,
        "its pull to be backed off",
        (one) => statusOf(one)?.state?.waiting?.reason === "ImagePullBackOff",
        180_000,
      );
      // The back-off shows at the next relist after the first failure, not after a second pull.
      assert.equal((await pods.event(pod, "Pulling", `Pulling image "${image}"`)).count, 1);
      const said = statusOf(backedOff)?.state?.waiting?.message ?? "";
      assert.ok(said.startsWith(`Back-off pulling image "${image}": ErrImagePull: `), said);
      assert.deepEqual([backedOff.status?.phase, statusOf(backedOff)?.restartCount], ["Pending", 0]);
      await pods.event(pod, "Failed", /^Failed to pull image "/);
      await pods.event(pod, "Failed", "Error: ErrImagePull");
      await pods.event(pod, "BackOff", `Back-off pulling image "${image}"`);
    };
    await Promise.all(faulty.map(([name, image]) => isToldOf(`faulty-${name}`, image)));
  });
});

describe("shutdown while calls hang", { timeout: 300_000 }, () => {
  test("graftlet exits within ten seconds while probes, hooks, pulls, streams and reviews hang", async () => {
    assert.equal(await lab.agent.stop(), true);
    await endsWhileAllHangs(lab);
  });
});
