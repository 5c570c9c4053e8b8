import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { untilReadiness } from "../harness/docker-lab.ts";
import { type Invariants, createInvariants } from "../harness/invariants.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { shell, statusOf } from "../harness/pods.ts";
import { type ProcessId, signalProcess } from "../harness/processes.ts";
import { readState } from "../harness/state.ts";

const named = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
/** Of a pod that the cluster does not evict, however long its node is not ready. */
const tolerations = [{ operator: "Exists" }];

describe("a runtime and a registry that hang", { timeout: 400_000 }, () => {
  const steady = named("steady", 8);
  const probed = named("probed", 4);
  const crashing = named("crashing", 3);
  const quiet = [...steady, ...probed];
  let lab: Lab;
  let invariants: Invariants;

  before(async () => {
    lab = await startLab("chaos-runtime", { args: ["-v=4"] });
    const { cluster, pods } = lab;
    invariants = createInvariants(cluster);
    const probe = { exec: { command: ["true"] }, periodSeconds: 1, timeoutSeconds: 20 };
    await Promise.all([
      ...steady.map((name) => pods.create(name, { tolerations })),
      ...probed.map((name) =>
        pods.create(name, { tolerations, containers: [{ readinessProbe: probe, livenessProbe: probe }] }),
      ),
      ...crashing.map((name) => pods.create(name, { tolerations, containers: [shell("sleep 1; exit 3")] })),
    ]);
    await Promise.all(quiet.map((name) => pods.ready(name)));
  });
  after(async () => {
    await invariants?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  test("deletes a pod with a hanging image pull, and one that waits for the same pull, within their grace periods", async (t) => {
    const { cluster, pods } = lab;
    const standing = await invariants.standing(...quiet);
    const registry = readState(cluster.layout)?.daemons["registry-open"];
    assert.ok(registry);
    signal(registry, "SIGSTOP");
    try {
      const image = "registry.k8s.io/e2e-test-images/not-there:hangs";
      // The pull would hang for minutes; on a busy machine the rest takes its seconds too.
      const graceSeconds = 15;
      await pods.create("pulling", { terminationGracePeriodSeconds: graceSeconds, containers: [{ image }] });
      await pods.event("pulling", "Pulling");
      // Others start meanwhile.
      await pods.create("beside", {});
      await pods.ready("beside");
      await sleep(2_000);
      const gone = pods.gone("pulling");
      const since = performance.now();
      await pods.remove("pulling", graceSeconds);
      await gone;
      const tookMs = performance.now() - since;
      t.diagnostic(`gone after ${Math.round(tookMs)} ms`);
      assert.ok(tookMs <= graceSeconds * 1000, `${tookMs} ms`);
    } finally {
      signal(registry, "SIGCONT");
    }
    await invariants.hold(standing);
  });

  test("names a runtime frozen for a minute as the reason for NotReady, and restarts nothing afterwards", async (t) => {
    const { cluster, pods } = lab;
    const standing = await invariants.standing(...quiet);
    const seen = new Map(quiet.map((name) => [name, pods.history(name).length]));
    await pods.create("leaver", { tolerations });
    await pods.ready("leaver");

    cluster.signalRuntime("SIGSTOP");
    const frozen = performance.now();
    const noticed = await untilReadiness(cluster, /^False KubeletNotReady .*container runtime is down/, 55_000);
    await pods.create("comer", { tolerations, nodeName: cluster.nodeName });
    await pods.remove("leaver");
    await sleep(60_000 - (performance.now() - frozen));
    assert.equal(pods.history("comer").at(-1)?.status?.startTime, undefined, "a pod is not admitted meanwhile");
    cluster.signalRuntime("SIGCONT");
    const recovered = await untilReadiness(cluster, /^True KubeletReady /);
    t.diagnostic(`NotReady after ${Math.round(noticed)} ms, Ready again ${Math.round(recovered)} ms after the thaw`);

    await Promise.all([
      pods.ready("comer"),
      cluster.mustKubectl(["wait", "--for=delete", "pod/leaver", "--timeout=60s"]),
      ...quiet.map((name) => pods.ready(name)),
    ]);
    await invariants.hold(standing);
    for (const name of steady) {
      const flaps = pods.history(name).slice(seen.get(name));
      // The node controller itself says so of the pods of a node that is not ready.
      assert.ok(
        flaps.every((pod) => statusOf(pod)?.ready && statusOf(pod)?.restartCount === 0),
        `${name} was touched`,
      );
    }
    for (const name of probed) assert.equal(statusOf(await pods.ready(name))?.restartCount, 0, name);
    for (const name of crashing)
      await pods.until(name, "to go on crashing", (pod) => (statusOf(pod)?.restartCount ?? 0) > 1);
    assert.equal(await cluster.mustKubectl(["exec", "steady-4", "--", "echo", "hi"]), "hi\n");
  });
});

function signal(process: ProcessId, name: NodeJS.Signals): void {
  assert.ok(signalProcess(process, name));
}
