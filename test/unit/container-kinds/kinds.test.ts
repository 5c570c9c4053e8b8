import assert from "node:assert/strict";
import { type TestContext, describe, test } from "node:test";
import { firstExceededLimit, storageLimits } from "../../../src/eviction/storage-limits.ts";
import { ContainerState } from "../../../src/gen/cri.ts";
import type { Container } from "../../../src/objects.ts";
import { containerStatuses } from "../../../src/status/generate/container-status.ts";
import { containerResources } from "../../../src/pod/resources.ts";
import { isRunning, newestRun } from "../../../src/pod/runs.ts";
import { resetFailedStarts } from "../../../src/pod/failed-starts.ts";
import type { Hooks } from "../../../src/runtime/hooks.ts";
import { probesOf } from "../../../src/probes/verdicts.ts";
import { usedVolumes } from "../../../src/volumes/paths.ts";
import { type Kind, type Promised, cells, kinds } from "../../container-kinds.ts";
import type { TestPod } from "../../fakes/pods.ts";
import { waitFor } from "../../harness/wait.ts";
import { allocatorOf, resource, rig as devicesRig, signal } from "../devices/rig.ts";
import { rig as runtimeRig } from "../runtime/pod-rig.ts";
import { containerOf, podOfAllKinds, simulate } from "./simulation.ts";

const { CONTAINER_CREATED: created, CONTAINER_EXITED: exited, CONTAINER_UNKNOWN: unknown } = ContainerState;

/** The resource settings that the runtime is given for a container with this limit. */
function limited(kind: Kind, limits: Readonly<Record<string, string>>) {
  const pod = podOfAllKinds(kind, { resources: { limits: { ...limits } } });
  const target = {
    memoryBytes: 4 * 2 ** 30,
    swapBytes: 0,
    hugePageSizes: ["2MB"],
    cgroupV2: false,
    swapController: false,
  };
  const settings = { cpuCfsQuota: true, cpuCfsPeriodUs: 100_000, singleProcessOomKill: false, limitedSwap: false };
  return containerResources({ ...settings, pod, container: containerOf(pod, kind), target });
}

/** What is started, in order, of a pod whose first sandbox has died after all of it had started. */
function startsAfterLoss(spec: Partial<TestPod["spec"]> = {}): readonly string[] {
  const world = simulate(podOfAllKinds(undefined, {}, spec));
  assert.deepEqual(world.settle().toSorted(), kinds.toSorted(), "each has started once");
  world.loseSandbox();
  world.hold("init");
  const first = world.settle();
  assert.ok(first.length <= 1, `while the first init container runs, nothing else starts: ${first.join()}`);
  world.hold(undefined);
  if (first.length > 0) world.change("init", { state: exited, exitCode: 0 });
  return [...first, ...world.settle()];
}

/** Each kind has its place again after the sandbox was lost; a container that was added for debugging ran once. */
function hasItsPlace(kind: Kind): void {
  const order = ["init", "sidecar", "main"];
  const starts = startsAfterLoss();
  assert.deepEqual(starts, order);
  assert.equal(starts.indexOf(kind), order.indexOf(kind));
}

/** A pod in which this container has just started, and those after it have not. */
function upTo(kind: Kind, spec: Partial<TestPod["spec"]> = {}) {
  const pod = podOfAllKinds(undefined, {}, spec);
  const world = simulate(pod, kind);
  world.settle();
  return { pod, world };
}

/** Makes passes over a pod until all has started that can; its init container ends well. */
async function passes(node: ReturnType<typeof runtimeRig>, pod: TestPod): Promise<void> {
  for (let pass = 0; pass < 5; pass++) {
    await node.pass(pod);
    const run = newestRun(await node.see(), "init", isRunning);
    if (run) node.runtime.exitContainer(run.id, 0);
  }
}

const cutOff = { exitCode: 128, reason: "StartError", message: "failed to create containerd task: context canceled" };

const checks: Readonly<Record<Promised, (kind: Kind, t: TestContext) => void | Promise<void>>> = {
  "cpu limit": (kind) => {
    const { cpuQuota, cpuShares } = limited(kind, { cpu: "500m" });
    assert.deepEqual([cpuQuota, cpuShares], [50_000n, 512n]);
  },

  "memory limit": (kind) => {
    assert.equal(limited(kind, { memory: "64Mi" }).memoryLimitInBytes, 64n * 2n ** 20n);
  },

  "ephemeral-storage limit": (kind) => {
    const limits = storageLimits(podOfAllKinds(kind, { resources: { limits: { "ephemeral-storage": "20Mi" } } }));
    assert.ok(limits);
    const using = (bytes: number) =>
      firstExceededLimit(limits, { volumes: new Map(), pod: 0, containers: new Map([[kind, bytes]]) });
    assert.equal(using(20 * 2 ** 20), undefined);
    assert.deepEqual(using(20 * 2 ** 20 + 1), {
      signal: "ephemeralcontainerfs.limit",
      message: `Container ${kind} exceeded its local ephemeral storage limit "20Mi". `,
    });
  },

  "hugepages limit": (kind) => {
    const { hugepageLimits } = limited(kind, { "hugepages-2Mi": "4Mi", memory: "64Mi" });
    assert.deepEqual(hugepageLimits, [{ pageSize: "2MB", limit: 4n * 2n ** 20n }]);
  },

  devices: async (kind, t) => {
    const node = await devicesRig(t);
    const options = { devices: ["a"], answer: (ids: readonly string[]) => ({ envs: { GIVEN: ids.join() } }) };
    const plugin = await node.plugin(options);
    await plugin.register();
    await waitFor("the device", () => node.shown() === "1/1", { everyMs: 5 });
    const pod = podOfAllKinds(kind, { resources: { limits: { [resource]: "1" } } });
    const given = async (of: typeof node) =>
      (await of.devices.prepareContainer(pod, containerOf(pod, kind), signal))?.environment.get("GIVEN");
    assert.equal(await allocatorOf(node).allocate(pod, [], signal), undefined);
    assert.equal(await given(node), "a");
    const again = await node.restarted();
    const early = allocatorOf(again, { allSourcesReady: false, alive: ["uid-1"] });
    assert.equal(await early.allocate(pod, [], signal), undefined, "the plugin is not back yet");
    assert.equal(await given(again), "a");
  },

  "order after a new sandbox": hasItsPlace,

  "restart of the agent": (kind) => {
    const { pod, world } = upTo(kind, { restartPolicy: "Never" });
    assert.deepEqual(world.settle(), [], "what runs is left alone");
    world.change(kind, { state: created });
    assert.deepEqual(world.settle(), [kind], "what was created and not started is started");
    world.change(kind, { state: exited, startedAt: 0n, ...cutOff });
    const run = newestRun(world.observed(), kind);
    const stateFor = (isKnown: boolean) =>
      newestRun(
        resetFailedStarts(world.observed(), () => isKnown),
        kind,
      )?.state;
    assert.deepEqual([run?.state, stateFor(true), stateFor(false)], [exited, exited, created]);
    world.change(kind, { state: stateFor(false) ?? exited });
    assert.deepEqual(world.settle(), [kind], "a start that was cut off and ran nothing is made again");
    assert.equal(pod.spec.restartPolicy, "Never");
  },

  "restart of the runtime": (kind) => {
    const { world } = upTo(kind);
    world.change(kind, { state: unknown });
    const again = kind === "ephemeral" ? [] : [kind];
    assert.deepEqual(world.settle(), again, "a container whose state the runtime has lost starts again");
    const what = kind === "main" ? "Container" : "Init container";
    const text = `${what} is in "unknown" state, try killing it before restart`;
    assert.deepEqual(world.kills, kind === "ephemeral" ? [] : [text]);
  },

  "restart of the machine": (kind) => {
    hasItsPlace(kind);
    assert.deepEqual(startsAfterLoss({ restartPolicy: "Never" }), [], "a pod that never restarts is over");
  },

  probes: (kind) => {
    const probe = { exec: { command: ["true"] } };
    const fields: Partial<Container> = { livenessProbe: probe, readinessProbe: probe, startupProbe: probe };
    const pod = podOfAllKinds(kind, fields);
    assert.deepEqual(
      probesOf(pod)
        .map((one) => `${one.container.name} ${one.kind}`)
        .toSorted(),
      ["liveness", "readiness", "startup"].map((each) => `${kind} ${each}`),
    );
    const world = simulate(pod);
    const passed = { hasStarted: () => true };
    world.settle(passed);
    const { id } = newestRun(world.observed(), kind) ?? {};
    const condemned = {
      ...passed,
      failedProbe: (_name: string, its: string) => (its === id ? "liveness" : undefined),
    } as const;
    assert.deepEqual(world.settle(condemned), [kind], "one that fails its liveness probe starts again");
    const listed = kind === "main" ? "containers" : "initContainers";
    const readyWith = (verdict: "Success" | "Failure") =>
      containerStatuses(listed, {
        pod,
        observed: world.observed(),
        previous: undefined,
        failures: new Map(),
        readiness: () => verdict,
        started: () => true,
        actualResources: () => undefined,
        stopSignals: false,
        imageVolumeDigests: false,
        runtimeName: "containerd",
      }).find(({ name }) => name === kind)?.ready;
    assert.deepEqual([readyWith("Success"), readyWith("Failure")], [true, false]);
  },

  hooks: async (kind) => {
    const ran: string[] = [];
    const [postStart, preStop] = [{ exec: { command: ["begin"] } }, { exec: { command: ["end"] } }];
    const hooks: Hooks = {
      run: async (hook, { container: { name } }) => void ran.push(`${name} ${hook.exec?.command?.join()}`),
    };
    const node = runtimeRig({ hooks });
    const pod = podOfAllKinds(kind, { lifecycle: { postStart, preStop } });
    await passes(node, pod);
    assert.deepEqual(ran, [`${kind} begin`]);
    await node.podRuntime.kill(await node.see(), pod, 5, signal);
    assert.deepEqual(ran, [`${kind} begin`, `${kind} end`]);
  },

  images: async (kind) => {
    const node = runtimeRig();
    const pod = podOfAllKinds(kind, { image: "none" });
    await passes(node, pod);
    const failure = { reason: "ErrImagePull", message: "not there" };
    assert.deepEqual(node.starts.get("uid-1")?.failures, new Map([[kind, failure]]));
    const ran = new Set((await node.states()).map((line) => line.replace(/\/.*/, "")));
    const before: Readonly<Record<Kind, readonly Kind[]>> = {
      init: [],
      sidecar: ["init"],
      main: ["init", "sidecar"],
      ephemeral: ["init", "main", "sidecar"],
    };
    assert.deepEqual(
      [...ran].filter((name) => name !== "ephemeral"),
      before[kind],
      "what comes after it waits",
    );
  },

  volumes: async (kind) => {
    const volumes = [
      { name: "v", configMap: { name: "m" } },
      { name: "unused", emptyDir: {} },
    ];
    const mounting = { volumeMounts: [{ name: "v", mountPath: "/v" }] };
    const pod = podOfAllKinds(kind, mounting, { volumes });
    assert.deepEqual(
      usedVolumes(pod).map(({ name }) => name),
      ["v"],
    );
    let stable = 0;
    const starts: string[] = [];
    const node = runtimeRig({
      async withStableFiles(_uid, work) {
        stable += 1;
        try {
          return await work();
        } finally {
          stable -= 1;
        }
      },
    });
    const { startContainer } = node.runtime;
    node.runtime.startContainer = async (id, stop) => {
      const run = (await node.see()).containers.find((one) => one.id === id);
      starts.push(`${run?.metadata?.name} ${stable}`);
      return startContainer(id, stop);
    };
    await passes(node, pod);
    assert.ok(starts.includes(`${kind} 1`), `its files stay while it starts: ${starts.join()}`);
  },
};

for (const { kind, promised, absent } of cells) {
  if (absent !== undefined) continue;
  test(`${kind} container keeps the promises for ${promised}`, (t) => checks[promised](kind, t));
}

describe("the table of container kinds", () => {
  test("the table has an entry, or a reason for its absence, for each promise and kind", () => {
    assert.equal(cells.length, kinds.length * Object.keys(checks).length);
    for (const { absent } of cells) assert.ok(absent === undefined || absent.length > 10);
  });
});
