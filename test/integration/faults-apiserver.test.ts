import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { ContainerState, Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type Invariants, createInvariants } from "../harness/invariants.ts";
import { condition, firstProcess, images, statusOf } from "../harness/pods.ts";
import { must, signalProcess } from "../harness/processes.ts";
import { readState } from "../harness/state.ts";

/** How long the API server is away, seconds. */
const awaySeconds = 60;

describe("a minute without the API server", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let invariants: Invariants;
  let agent: Agent;
  let folder: string;

  const startAgent = async (untilReady: boolean) => {
    agent = await startGraftlet(cluster, { args: ["-v=4"], untilReady });
  };
  const podOf = async (name: string): Promise<Pod> => {
    const pod = await cluster.get<Pod>("pod", name);
    assert.ok(pod, `pod ${name} is there`);
    return pod;
  };
  const until = (name: string, what: string, holds: (pod: Pod) => boolean, timeoutMs = 60_000) =>
    cluster.waitFor(
      `${name}: ${what}`,
      async () => {
        const pod = await podOf(name);
        return holds(pod) && pod;
      },
      { timeoutMs, explain: async () => JSON.stringify((await podOf(name)).status, undefined, 1) },
    );
  const isReady = (pod: Pod) => condition(pod, "Ready")?.status === "True";
  const runs = (name: string) =>
    existsSync(join(folder, name)) ? readFileSync(join(folder, name), "utf8").trim().split("\n") : [];

  /** A pod whose container notes each start in a file, then does what the script says. */
  const pod = (name: string, script: string, spec: object = {}, more: object = {}): object => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name },
    spec: {
      nodeName: cluster.nodeName,
      terminationGracePeriodSeconds: 1,
      volumes: [{ name: "runs", hostPath: { path: folder } }],
      containers: [
        {
          name: "main",
          image: images.busybox,
          command: ["sh", "-c", `date +%s >> /runs/${name}; ${script}`],
          volumeMounts: [{ name: "runs", mountPath: "/runs" }],
          ...more,
        },
      ],
      ...spec,
    },
  });
  const readinessProbe = {
    exec: { command: ["test", "-e", "/runs/ready"] },
    periodSeconds: 1,
    failureThreshold: 1,
    timeoutSeconds: 20,
  };

  before(async () => {
    cluster = await startCluster({ name: "faults-apiserver" });
    folder = join(cluster.layout.dir, "runs");
    mkdirSync(folder);
    writeFileSync(join(folder, "ready"), "");
    invariants = createInvariants(cluster);
    await startAgent(true);
    const untilFinish = "while ! test -e /runs/finish; do sleep 0.2; done";
    await cluster.apply([
      pod("steady", "exec sleep infinity"),
      pod(
        "steady-probed",
        "exec sleep infinity",
        {},
        { readinessProbe: { ...readinessProbe, exec: { command: ["true"] } } },
      ),
      pod("flips", "exec sleep infinity", {}, { readinessProbe }),
      pod("crashes", "test -e /runs/healed && exec sleep infinity; sleep 2; exit 3"),
      pod("victim", "exec sleep infinity"),
      pod("succeeds", `${untilFinish}; sleep 3`, { restartPolicy: "Never" }),
      pod("fails", `${untilFinish}; sleep 3; exit 4`, { restartPolicy: "Never" }),
      pod("ends-unseen", "while ! test -e /runs/end; do sleep 0.2; done; exit 5", { restartPolicy: "Never" }),
      pod("leaves", "exec sleep infinity"),
    ]);
    for (const name of ["steady", "steady-probed", "flips", "victim", "leaves", "succeeds", "fails", "ends-unseen"])
      await until(name, "to be Ready", isReady);
  });
  after(async () => {
    await invariants?.[Symbol.asyncDispose]();
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("statuses are correct afterwards, although containers crashed, finished and were probed, and graftlet was killed", async () => {
    const standing = await invariants.standing("steady", "steady-probed");
    const victim = await podOf("victim");
    const readySince = Object.fromEntries(
      await Promise.all(
        ["steady", "steady-probed"].map(
          async (name) => [name, condition(await podOf(name), "Ready")?.lastTransitionTime] as const,
        ),
      ),
    );
    // Its end is asked for in the last moment; graftlet may learn of it only when the API server is back.
    await cluster.mustKubectl(["delete", "pod", "leaves", "--wait=false"]);
    // It would call the node and all its pods not ready, by a Lease that nobody could renew.
    const nodeController = readState(cluster.layout)?.daemons["kube-controller-manager"];
    assert.ok(nodeController && signalProcess(nodeController, "SIGSTOP"));
    await cluster.stopApiServer();
    const awaySince = Date.now();

    rmSync(join(folder, "ready"));
    writeFileSync(join(folder, "finish"), "");
    await must(["kill", "-9", String(firstProcess(cluster, victim))]);
    const killedAt = Math.floor(Date.now() / 1000);
    await cluster.waitFor("the victim to run again without an API server", () => runs("victim").length === 2);
    await cluster.waitFor("the crash loop to go on without an API server", () => runs("crashes").length >= 3);
    writeFileSync(join(folder, "healed"), "");
    await agent.kill("SIGKILL");
    // Nobody sees this one end: its exit is found by the next graftlet.
    writeFileSync(join(folder, "end"), "");
    const endedAt = Math.floor(Date.now() / 1000);
    await startAgent(false);
    await cluster.waitFor("a minute without an API server", () => Date.now() - awaySince >= awaySeconds * 1000, 90_000);
    const crashes = runs("crashes").length;
    await cluster.startApiServer();
    const back = performance.now();
    await cluster.apply(pod("comes", "exec sleep infinity"));
    await until("comes", "to run", ({ status }) => status?.phase === "Running");
    assert.ok(performance.now() - back <= 10_000, "a new pod runs within ten seconds of the API server's return");

    await until("victim", "to be told", (now) => statusOf(now)?.restartCount === 1 && isReady(now));
    const [restarted, unseen] = [
      await podOf("victim"),
      await until("ends-unseen", "to have Failed", ({ status }) => status?.phase === "Failed"),
    ];
    assert.deepEqual(
      [lastEndOf(restarted, killedAt), runs("victim").length],
      [{ exitCode: 137, containerID: statusOf(victim)?.containerID, inTime: true }, 2],
    );
    assert.deepEqual(endOf(unseen, endedAt), { exitCode: 5, containerID: statusOf(unseen)?.containerID, inTime: true });
    await until("succeeds", "to have Succeeded", ({ status }) => status?.phase === "Succeeded");
    const failed = await until("fails", "to have Failed", ({ status }) => status?.phase === "Failed");
    assert.equal(endOf(failed, 0).exitCode, 4);
    await until("flips", "not to be Ready", (now) => condition(now, "Ready")?.status === "False");
    await cluster.mustKubectl(["wait", "--for=delete", "pod/leaves", "--timeout=50s"]);
    await until(
      "crashes",
      "to have healed",
      (now) => statusOf(now)?.state?.running !== undefined && isReady(now),
      120_000,
    );
    await invariants.hold(standing);
    for (const [name, since] of Object.entries(readySince)) {
      const ready = condition(await podOf(name), "Ready");
      assert.deepEqual([ready?.status, ready?.lastTransitionTime], ["True", since], `${name} has been Ready all along`);
    }
    assert.ok(runs("crashes").length - crashes <= 1, "the crash loop kept its back-off");
    assert.deepEqual(
      ["steady", "steady-probed", "succeeds", "fails", "ends-unseen", "flips"].map((name) => runs(name).length),
      [1, 1, 1, 1, 1, 1],
    );
    writeFileSync(join(folder, "ready"), "");
    await until("flips", "to be Ready again", isReady);
  });
});

/** How a container is shown to have ended, and whether within five seconds of this time (seconds since the epoch). */
function endOf(pod: Pod, seconds: number): object & { readonly exitCode: number | undefined } {
  return shownEnd(statusOf(pod)?.state, seconds);
}

/** The same of the run before the present one. */
function lastEndOf(pod: Pod, seconds: number): object {
  return shownEnd(statusOf(pod)?.lastState, seconds);
}

function shownEnd(state: ContainerState | undefined, seconds: number) {
  const { exitCode, containerID, finishedAt = "" } = state?.terminated ?? {};
  return { exitCode, containerID, inTime: Math.abs(Date.parse(finishedAt) / 1000 - seconds) <= 5 };
}
