import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { counted, type DockerLab, removeAll, startDockerLab, startsOf, untilReadiness } from "../harness/docker-lab.ts";
import { condition, type ContainerDraft, images, shell, statusOf } from "../harness/pods.ts";
import { identify, isAlive } from "../harness/processes.ts";
import { whole } from "../matrix.ts";

let lab: DockerLab;
before(async () => {
  lab = await startDockerLab("engine-faults");
});
after(() => lab?.[Symbol.asyncDispose]());

const named = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
/** What the cluster says of a node whose Docker Engine does not answer. */
const down = /^False KubeletNotReady .*container runtime is down: .*docker\.sock/;
const ready = /^True KubeletReady /;
/** The API server shows times to the second. */
const startOf = (pod: Pod): string | undefined => statusOf(pod)?.state?.running?.startedAt;

describe("the Docker Engine killed and restarted while pods run", { timeout: 600_000 }, () => {
  const steady = named("steady", whole ? 14 : 5);
  const probed = named("probed", 4);
  const names = [...steady, ...probed, "on-host", "pair"];

  before(async () => {
    const { cluster, pods } = lab;
    await Promise.all([
      ...steady.map((name) => pods.create(name, counted(cluster, name, "exec sleep infinity"))),
      ...probed.map((name, index) => pods.create(name, { containers: [probedBy(index)] })),
      pods.create("on-host", { hostNetwork: true }),
      pods.create("pair", { containers: [{}, {}] }),
    ]);
    await Promise.all(names.map((name) => pods.ready(name)));
  });
  after(() => removeAll(lab));

  test("with live-restore, graftlet restarts nothing, and meanwhile reports why the node is not ready", async (t) => {
    const { cluster, engine, invariants, pods } = lab;
    const standing = await invariants.standing(...names);
    const containers = await engine.standing();
    const started = new Map(names.map((name) => [name, startOf(newest(name))]));
    const inspected = await Promise.all(Object.keys(containers).map((name) => engine.inspect(name)));
    const processes = inspected.map(({ State }) => identify(State.Pid));

    await cluster.killRuntime();
    const noticed = await untilReadiness(cluster, down);
    assert.ok(
      processes.every((process) => process && isAlive(process)),
      "processes of pods ended with the daemon",
    );
    await engine.start();
    const recovered = await untilReadiness(cluster, ready);
    t.diagnostic(`NotReady after ${Math.round(noticed)} ms, Ready again ${Math.round(recovered)} ms after the start`);

    await Promise.all(names.map((name) => pods.ready(name)));
    await invariants.hold(standing);
    assert.deepEqual(await engine.standing(), containers);
    for (const name of names) {
      const pod = newest(name);
      assert.equal(statusOf(pod)?.restartCount, 0, name);
      assert.equal(startOf(pod), started.get(name), name);
    }
    assert.equal(await cluster.mustKubectl(["exec", "steady-3", "--", "echo", "hi"]), "hi\n");
    assert.match(await cluster.mustKubectl(["logs", "probed-0"]), /^ready\n/);
    // The node's not being ready has been taken back, and nothing makes a pod unready afterwards.
    const seen = new Map(names.map((name) => [name, pods.history(name).length]));
    await sleep(12_000);
    for (const name of names) {
      const flaps = pods.history(name).slice(seen.get(name));
      assert.deepEqual(flaps.filter((pod) => condition(pod, "Ready")?.status !== "True").length, 0, `${name} flapped`);
    }
  });

  test("names an engine frozen for a minute as the reason for NotReady, and restarts nothing afterwards", async (t) => {
    const { cluster, engine, invariants, pods } = lab;
    const standing = await invariants.standing(...names);
    const seen = new Map(names.map((name) => [name, pods.history(name).length]));
    await pods.create("leaver", {});
    await pods.ready("leaver");

    cluster.signalRuntime("SIGSTOP");
    const frozen = performance.now();
    const noticed = await untilReadiness(cluster, down, 55_000);
    await pods.create("comer", { tolerations: [{ operator: "Exists" }], nodeName: cluster.nodeName });
    await pods.remove("leaver");
    await sleep(60_000 - (performance.now() - frozen));
    cluster.signalRuntime("SIGCONT");
    const recovered = await untilReadiness(cluster, ready);
    t.diagnostic(`NotReady after ${Math.round(noticed)} ms, Ready again ${Math.round(recovered)} ms after the thaw`);

    await Promise.all([
      pods.ready("comer"),
      cluster.mustKubectl(["wait", "--for=delete", "pod/leaver", "--timeout=60s"]),
      ...names.map((name) => pods.ready(name)),
    ]);
    await invariants.hold(standing);
    for (const name of names) {
      const flaps = pods.history(name).slice(seen.get(name));
      assert.ok(
        flaps.every((pod) => statusOf(pod)?.ready && statusOf(pod)?.restartCount === 0),
        `a probe of ${name} failed because the daemon did not answer`,
      );
    }
    assert.equal(await cluster.mustKubectl(["exec", "steady-4", "--", "echo", "hi"]), "hi\n");
    assert.deepEqual(
      Object.keys(await engine.standing()).filter((name) => name.includes("_leaver_")),
      [],
    );
  });

  function newest(name: string): Pod {
    return lab.pods.history(name).at(-1) ?? assert.fail(`${name} was never seen`);
  }
});

describe("the Docker Engine killed and restarted without live-restore", { timeout: 600_000 }, () => {
  /** Ends in peace when asked to. */
  const peaceful = "trap 'exit 0' TERM; sleep infinity & wait";
  /** The first process of a container hears no signal that it has no trap for: the daemon kills it. */
  const deaf = "exec sleep infinity";
  const policies = [
    ["always-deaf", "Always", deaf],
    ["always-peaceful", "Always", peaceful],
    ["on-failure-deaf", "OnFailure", deaf],
    ["on-failure-peaceful", "OnFailure", peaceful],
    ["never-deaf", "Never", deaf],
    ["never-peaceful", "Never", peaceful],
  ] as const;
  const more = named("also", whole ? 14 : 4);

  before(async () => {
    const { cluster, pods } = lab;
    await Promise.all([
      ...policies.map(([name, restartPolicy, script]) =>
        pods.create(name, counted(cluster, name, script, { restartPolicy })),
      ),
      ...more.map((name) => pods.create(name, counted(cluster, name, deaf))),
      pods.create("half-done", {
        restartPolicy: "OnFailure",
        containers: [shell("true", { name: "done" }), { name: "main" }],
      }),
      pods.create("initialized", { initContainers: [shell("true")] }),
    ]);
    await Promise.all([
      ...[...policies.map(([name]) => name), ...more, "initialized"].map((name) => lab.pods.ready(name)),
      pods.until(
        "half-done",
        "one of two to have ended",
        (pod) => statusOf(pod, "done")?.state?.terminated !== undefined,
      ),
      pods.until("half-done", "the other to run", (pod) => statusOf(pod)?.state?.running !== undefined),
    ]);
  });
  after(() => removeAll(lab));

  test("applies each pod's restart policy once to containers that ended with the engine", async (t) => {
    const { cluster, engine, invariants, pods } = lab;
    const neverRestarted = ["on-failure-peaceful", "never-deaf", "never-peaceful"];
    const restarted = ["always-deaf", "always-peaceful", "on-failure-deaf", ...more, "half-done", "initialized"];
    await cluster.killRuntime();
    const since = performance.now();
    await engine.start({ liveRestore: false });
    t.diagnostic(`the daemon took ${Math.round(performance.now() - since)} ms to start`);

    const again = (name: string): Promise<Pod> =>
      pods.until(
        name,
        "to run again",
        (pod) => statusOf(pod)?.restartCount === 1 && statusOf(pod)?.state?.running !== undefined,
        120_000,
      );
    const [deafOnFailure] = await Promise.all([
      again("on-failure-deaf"),
      ...restarted.map(again),
      pods.until("on-failure-peaceful", "to succeed", (pod) => pod.status?.phase === "Succeeded"),
      pods.until("never-peaceful", "to succeed", (pod) => pod.status?.phase === "Succeeded"),
      pods.until("never-deaf", "to fail", (pod) => pod.status?.phase === "Failed"),
    ]);
    assert.equal(statusOf(deafOnFailure)?.lastState?.terminated?.exitCode, 137);
    t.diagnostic(`the last pod ran again ${Math.round(performance.now() - since)} ms after the daemon was killed`);
    await Promise.all(restarted.filter((name) => name !== "half-done").map((name) => pods.ready(name)));
    await untilReadiness(cluster, ready);
    // What is to happen once has time to happen twice: the first back-off of a crash loop is ten seconds.
    const settled = await invariants.standing(...restarted);
    await sleep(15_000);
    await invariants.hold(settled);

    const counts = (names: readonly string[]) => names.map((name) => `${name} ${startsOf(cluster, name)}`);
    const many = restarted.filter((name) => !["half-done", "initialized"].includes(name));
    assert.deepEqual(
      counts(many),
      many.map((name) => `${name} 2`),
    );
    assert.deepEqual(
      counts(neverRestarted),
      neverRestarted.map((name) => `${name} 1`),
    );
    for (const name of restarted)
      assert.equal(statusOf(pods.history(name).at(-1) ?? assert.fail(name))?.restartCount, 1, name);
    const halfDone = pods.history("half-done").at(-1);
    // A container that has done its work is not run again in the pod's new sandbox; an init container is.
    assert.equal(halfDone && statusOf(halfDone, "done")?.restartCount, 0);
    const initialized = pods.history("initialized").at(-1);
    assert.equal(initialized && statusOf(initialized, "init-0")?.restartCount, 1);
    for (const name of neverRestarted) {
      const left = (await engine.containers(`io.kubernetes.pod.name=${name}`)).filter(
        ({ State }) => State === "running",
      );
      assert.deepEqual(left, [], name);
    }
  });
});

/** A container whose readiness is probed each second, by one of three kinds of probe. */
function probedBy(index: number): ContainerDraft {
  const often = { periodSeconds: 1, timeoutSeconds: 20 };
  if (index % 3 === 0)
    return shell("echo ready; exec sleep infinity", { readinessProbe: { exec: { command: ["true"] }, ...often } });
  const server = { image: images.agnhost, command: ["/agnhost", "netexec"] };
  const check = index % 3 === 1 ? { httpGet: { port: 8080 } } : { tcpSocket: { port: 8080 } };
  return { ...server, readinessProbe: { ...check, ...often } };
}
