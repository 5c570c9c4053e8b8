import assert from "node:assert/strict";
import { test } from "node:test";
import {
  ContainerConfig,
  ContainerState,
  type ContainerStatus,
  ImageSpec,
  PodSandboxConfig,
  PodSandboxState,
} from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { Container } from "../../../src/objects.ts";
import { containerRestartCountAnnotation } from "../../../src/pod/labels.ts";
import { RuntimeError } from "../../../src/seams/runtime.ts";
import { type SandboxDeps, runSandbox } from "../../../src/runtime/run-sandbox.ts";
import { type StartDeps, runPostStart, startContainer } from "../../../src/runtime/start-container.ts";
import { StartError } from "../../../src/runtime/start-error.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

const c = aContainer("c");

function rig(
  over: Partial<StartDeps> & { readonly container?: Container } = {},
  runtime: Partial<StartDeps["runtime"]> = {},
  history: readonly ContainerStatus[] = [],
) {
  const calls: string[] = [];
  const events = eventLines();
  const deps: StartDeps = {
    tunnel: undefined,
    runtime: {
      createContainer: async ({ podSandboxId, config }) => {
        calls.push(`create in ${podSandboxId} ${config?.image?.image}`);
        return { containerId: "new" };
      },
      startContainer: async (id) => void calls.push(`start ${id}`),
      removeContainer: async (id) => void calls.push(`remove ${id}`),
      stopContainer: async (id, grace) => void calls.push(`stop ${id} ${grace}`),
      stopPodSandbox: async () => assert.fail("a container alone is stopped"),
      ...runtime,
    },
    withStableFiles: (_uid, work) => work(),
    ensureImages: async () => ({ imageRef: "sha256:1", volumes: new Map() }),
    configure: async (_start, { imageRef: image }, restartCount) => {
      calls.push(`configure ${restartCount}`);
      return { config: ContainerConfig.fromPartial({ image: { image } }), hostsWritten: Promise.resolve() };
    },
    restartCountFromLogs: async () => 3,
    linkLog: async (_start, _config, id) => void calls.push(`link ${id}`),
    removeLog: async () => undefined,
    events,
    measures: unmeasured.starts,
    hooks: { run: async () => void calls.push("hook") },
    clock: fakeClock(),
    log: silentLog(),
    uninterrupted: never,
    ...over,
  };
  const start = {
    pod: aPod(),
    container: over.container ?? c,
    observed: observe([aSandbox()], history),
    sandbox: { id: "box", config: PodSandboxConfig.fromPartial({}), ips: Promise.resolve([]) },
    mounted: new Map<string, never>(),
  };
  const go = async (signal = never) => {
    const started = await startContainer(deps, start, signal);
    calls.push(`started ${started.id}`);
    await runPostStart(deps, start, started, signal);
  };
  return { calls, events, go };
}

test("configures, creates and starts a container and links its log, with the kubelet's events", async () => {
  const { calls, events, go } = rig();
  await go();
  assert.deepEqual(calls, ["configure 3", "create in box sha256:1", "start new", "link new", "started new"]);
  assert.deepEqual(events.lines, ["Normal Created Container created", "Normal Started Container started"]);
});

test("the pod's files do not change from the configuration until the runtime has answered, but may change during the hook", async () => {
  const { calls, go } = rig({
    container: aContainer("c", { lifecycle: { postStart: { exec: { command: ["true"] } } } }),
    async withStableFiles(uid, work) {
      calls.push(`files of ${uid} are stable`);
      try {
        return await work();
      } finally {
        calls.push("files may change");
      }
    },
  });
  await go();
  assert.deepEqual(calls, [
    "files of uid-1 are stable",
    "configure 3",
    "create in box sha256:1",
    "start new",
    "files may change",
    "link new",
    "started new",
    "hook",
  ]);
});

test("starts a container only once its hosts file is written, and reports a failed write as a configuration error", async () => {
  const written = Promise.withResolvers<void>();
  const { calls, events, go } = rig({
    configure: async () => ({ config: ContainerConfig.fromPartial({}), hostsWritten: written.promise }),
  });
  const started = go();
  await new Promise(setImmediate);
  assert.deepEqual(calls, ["create in box undefined"]);
  written.reject(new Error("disk full"));
  await assert.rejects(
    started,
    (error) => error instanceof StartError && error.reason === "CreateContainerConfigError",
  );
  assert.deepEqual([calls.length, events.lines], [1, ["Warning Failed Error: disk full"]]);
});

test("counts image volumes by the outcome of their mounts", async () => {
  const counts: string[] = [];
  const measures = {
    imageVolumes: (images: number, places: number, outcome: string) =>
      void counts.push(`${images} in ${places} ${outcome}`),
  };
  const volumeMounts = ["i", "i", "j", "data"].map((name, at) => ({ name, mountPath: `/${at}` }));
  const volumes = new Map(["i", "j"].map((name) => [name, ImageSpec.fromPartial({ image: name })]));
  const ensureImages = async () => ({ imageRef: "sha256:1", volumes });
  const over = { measures, ensureImages, container: aContainer("c", { volumeMounts }) };
  await rig(over).go();
  const text = "ImageVolumeMountFailed: no such path in the image";
  for (const error of [
    new RuntimeError("unknown", "ImageVolumeMountFailed", text),
    new CodedError("unknown", "no space left on device"),
  ])
    await assert.rejects(rig(over, { createContainer: () => Promise.reject(error) }).go(), { message: error.message });
  await rig({ measures }).go();
  assert.deepEqual(counts, ["2 in 3 mounted", "2 in 3 failed"], "errors unrelated to image volumes are not counted");
});

test("failing to remove a never-started container fails that container, not the pod", async () => {
  const unstarted = aStatus(c, ContainerState.CONTAINER_CREATED);
  const removeContainer = () => Promise.reject(new CodedError("unknown", "busy"));
  const { calls, events, go } = rig({}, { removeContainer }, [unstarted]);
  await assert.rejects(go(), (error) => error instanceof StartError && error.reason === "CreateContainerError");
  assert.deepEqual([calls, events.lines], [[], ["Warning Failed Error: busy"]]);
});

test("the restart count continues from the last container; a never-started one is replaced with the same count", async () => {
  const ended = aStatus(c, ContainerState.CONTAINER_EXITED, {
    annotations: { [containerRestartCountAnnotation]: "4" },
  });
  const after = rig({}, {}, [ended]);
  await after.go();
  assert.equal(after.calls[0], "configure 5");
  const unstarted = aStatus(c, ContainerState.CONTAINER_CREATED, {
    annotations: { [containerRestartCountAnnotation]: "4" },
  });
  const again = rig({}, {}, [ended, unstarted]);
  await again.go();
  assert.deepEqual(again.calls.slice(0, 2), [`remove ${unstarted.id}`, "configure 4"]);
});

const bad = async () => Promise.reject(new CodedError("unknown", "no good"));
const failures: readonly (readonly [string, Partial<StartDeps>, Partial<StartDeps["runtime"]>])[] = [
  ["CreateContainerConfigError", { configure: bad }, {}],
  ["CreateContainerError", {}, { createContainer: bad }],
  ["RunContainerError", {}, { startContainer: bad }],
];
for (const [reason, over, runtime] of failures) {
  test(`${reason} is reported in the status with the error's text, and by an event`, async () => {
    const { events, go } = rig(over, runtime);
    await assert.rejects(
      go(),
      (error: unknown) => error instanceof StartError && error.reason === reason && error.message === "no good",
    );
    assert.equal(events.lines.at(-1), "Warning Failed Error: no good");
  });
}

test("a start error names the container if the runtime rejected it, but not if the runtime did not answer", async () => {
  const refusal = async (cause: Error) => {
    const startContainer = async () => Promise.reject(cause);
    try {
      await rig({}, { startContainer }).go();
    } catch (thrown) {
      if (thrown instanceof StartError) return thrown.refused;
    }
    return "no such error";
  };
  assert.equal(await refusal(new CodedError("unknown", "no such program")), "new");
  for (const code of ["unavailable", "deadline_exceeded", "cancelled"] as const)
    assert.equal(await refusal(new CodedError(code, "connection lost")), undefined, code);
});

test("the event of a failed start has the container's name instead of its ID, so that events are aggregated", async () => {
  const { events, go } = rig(
    {},
    { startContainer: async (id) => Promise.reject(new CodedError("unknown", `failed to start task "${id}"`)) },
  );
  await assert.rejects(go(), { message: /^failed to start task "new"$/ });
  assert.equal(events.lines.at(-1), 'Warning Failed Error: failed to start task "c"');
});

test("creates nothing if the image is unavailable", async () => {
  const { calls, events, go } = rig({
    ensureImages: async () => Promise.reject(new StartError("ImagePullBackOff", "Back-off pulling image")),
  });
  await assert.rejects(go(), { reason: "ImagePullBackOff" });
  assert.deepEqual([calls, events.lines], [[], ["Warning Failed Error: ImagePullBackOff"]]);
});

test("the signal interrupts between steps, never within one", async () => {
  const stop = new AbortController();
  const { calls, go } = rig(
    {},
    {
      createContainer: async (_request, signal) => {
        stop.abort(new CodedError("cancelled", "pod is being terminated"));
        assert.equal(signal.aborted, false);
        return { containerId: "new" };
      },
    },
  );
  await assert.rejects(go(stop.signal), { code: "cancelled" });
  assert.deepEqual(calls, ["configure 3"]);
});

test("a call that fails after the abort is not reported as a container failure", async () => {
  for (const call of ["createContainer", "startContainer"] as const) {
    const stop = new AbortController();
    const lost = new CodedError("unavailable", "the target is lost");
    const { events, go } = rig(
      {},
      {
        [call]: async () => {
          stop.abort(lost);
          throw new CodedError("unavailable", "connection closed");
        },
      },
    );
    await assert.rejects(go(stop.signal), lost);
    assert.ok(!events.lines.some((line) => line.startsWith("Warning")), events.lines.join());
  }
});

test("a failure to link the log does not fail the start", async () => {
  const { events, go } = rig({ linkLog: bad });
  await go();
  assert.equal(events.lines.at(-1), "Normal Started Container started");
});

const hooked = aContainer("c", { lifecycle: { postStart: { exec: { command: ["true"] } } } });

test("the postStart hook runs after the container has started and is known", async () => {
  const { calls, go } = rig({ container: hooked });
  await go();
  assert.deepEqual(calls.slice(-3), ["link new", "started new", "hook"]);
});

test("a failed postStart hook kills the container; its output appears in the status only", async () => {
  const { calls, events, go } = rig({
    container: hooked,
    hooks: { run: async () => Promise.reject(new Error("it said a secret")) },
  });
  await assert.rejects(go(), { reason: "PostStartHookError", message: "it said a secret" });
  assert.equal(calls.at(-1), "stop new 2");
  assert.deepEqual(events.lines.slice(-2), [
    "Warning FailedPostStartHook PostStartHook failed",
    "Normal Killing FailedPostStartHook",
  ]);
});

test("a terminating pod does not wait for a postStart hook", async () => {
  const stop = new AbortController();
  const { calls, events, go } = rig({
    container: hooked,
    hooks: {
      run: async (_hook, _target, signal) => {
        stop.abort(new CodedError("cancelled", "pod is being terminated"));
        signal.throwIfAborted();
      },
    },
  });
  await assert.rejects(go(stop.signal), { code: "cancelled" });
  assert.deepEqual([calls.at(-1), events.lines.at(-1)], ["started new", "Normal Started Container started"]);
});

function sandboxRig(over: Partial<SandboxDeps["runtime"]> = {}) {
  const events = eventLines();
  const measured: string[] = [];
  const status = aSandbox({ id: "box", network: { ip: "10.0.0.2", additionalIps: [{ ip: "fd00::2" }] } });
  const deps: SandboxDeps = {
    tunnel: undefined,
    runtime: {
      runPodSandbox: async () => ({ podSandboxId: "box" }),
      podSandboxStatus: async () => ({ status, info: {}, containersStatuses: [], timestamp: 0n }),
      ...over,
    },
    configureSandbox: async () => PodSandboxConfig.fromPartial({ logDirectory: "/logs/pod" }),
    createLogDirectory: async () => void measured.push("log directory"),
    runtimeClasses: { handler: () => assert.fail("the pod has no class") },
    managers: [],
    events,
    measures: {
      ...unmeasured.starts,
      podStarting: () => void measured.push("starting"),
      podFailed: () => void measured.push("failed"),
    },
    paceSandbox: (create) => {
      measured.push("turn");
      return create();
    },
    uninterrupted: never,
  };
  return {
    events,
    status,
    measured,
    run: async (prepared?: PodSandboxConfig) => {
      const { id, ready } = await runSandbox(deps, aPod(), 0, prepared, never);
      return { id, ips: (await ready).ips };
    },
  };
}

test("creates the log directory, and the sandbox when it is its turn, and reads its addresses, primary first", async () => {
  const { measured, run } = sandboxRig();
  assert.deepEqual((await run()).ips, ["10.0.0.2", "fd00::2"]);
  assert.deepEqual(measured, ["starting", "log directory", "turn"]);
});

test("a sandbox that fails or exits at once is reported by the kubelet's events", async () => {
  const refused = sandboxRig({ runPodSandbox: bad });
  await assert.rejects(refused.run(), { message: "no good" });
  assert.deepEqual(refused.events.lines, [
    "Warning FailedCreatePodSandBox Failed to create pod sandbox: rpc error: code = Unknown desc = no good",
  ]);
  const short = sandboxRig();
  short.status.state = PodSandboxState.SANDBOX_NOTREADY;
  await assert.rejects(short.run(), /ended right after its start/);
  for (const { measured } of [refused, short])
    assert.deepEqual(measured, ["starting", "log directory", "turn", "failed"]);
  assert.match(short.events.lines.join(), /^Warning FailedPodSandBoxStatus Unable to get pod sandbox status: /);
});
