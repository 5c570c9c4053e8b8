import assert from "node:assert/strict";
import { describe, it, test } from "node:test";
import { ContainerConfig, ContainerState, Image, NamespaceMode, PodSandboxConfig } from "../../../src/gen/cri.ts";
import { containerNameLabel } from "../../../src/pod/labels.ts";
import type { CreatedFiles } from "../../../src/runtime/container-files.ts";
import type { StartError } from "../../../src/runtime/start-error.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { rig, running, exited } from "./pod-rig.ts";

test("a new pod gets its sandbox, reported before containers start, and all containers; the next pass does nothing", async () => {
  const { runtime, ready, pass, states, starts } = rig();
  const pod = aPod({ containers: [aContainer("a"), aContainer("b")] });
  assert.deepEqual(await pass(pod), {});
  assert.deepEqual([await states(), ready], [[running("a"), running("b")], [1]]);
  const before = runtime.calls.filter(({ verb }) => !/^(list|.*Status$)/.test(verb)).length;
  assert.deepEqual(await pass(pod), { untouched: true });
  assert.equal(runtime.calls.filter(({ verb }) => !/^(list|.*Status$)/.test(verb)).length, before);
  assert.equal(starts.get("uid-1")?.failures.size ?? 0, 0);
});

test("the RuntimeClass selects the sandbox's handler; without one the runtime's default is used", async () => {
  for (const [runtimeClassName, handler] of [
    ["secure", "handler-of-secure"],
    ["", ""],
    [undefined, ""],
  ] as const) {
    const { see, pass } = rig();
    await pass(aPod(runtimeClassName === undefined ? {} : { runtimeClassName }));
    assert.equal((await see()).sandboxes[0]?.runtimeHandler, handler);
  }
});

test("until its RuntimeClass exists, a pod gets no sandbox, only the kubelet's event", async () => {
  const classes = new Map<string, string>();
  const handler = async (name: string) => {
    const found = classes.get(name);
    if (found === undefined) throw new Error(`runtimeclass.node.k8s.io "${name}" not found`);
    return found;
  };
  const { events, see, pass, states } = rig({ runtimeClasses: { handler } });
  const pod = aPod({ runtimeClassName: "secure" });
  const { error } = await pass(pod);
  assert.equal(error?.message, 'runtimeclass.node.k8s.io "secure" not found');
  assert.deepEqual((await see()).sandboxes, []);
  assert.deepEqual(events.lines, [
    'Warning FailedCreatePodSandBox Failed to create pod sandbox: runtimeclass.node.k8s.io "secure" not found',
  ]);
  classes.set("secure", "runsc");
  await pass(pod);
  assert.deepEqual(await states(), [running("c")]);
});

test("init containers run one after another, then the others; a new sandbox starts over once everything of the old one has been removed", async () => {
  const { runtime, unlogged, see, pass, states } = rig();
  const pod = aPod({ initContainers: [aContainer("one"), aContainer("two")] });
  const end = async (name: string) =>
    runtime.exitContainer(
      (await see()).containers.find(({ labels }) => labels[containerNameLabel] === name)?.id ?? "",
      0,
    );
  await pass(pod);
  await pass(pod);
  assert.deepEqual(await states(), [running("one")]);
  await end("one");
  await pass(pod);
  assert.deepEqual(await states(), [exited("one"), running("two")]);
  await end("two");
  await pass(pod);
  assert.deepEqual(await states(), [running("c"), exited("one"), exited("two")]);
  const before = await see();
  const old = before.containers.filter(({ state }) => state === ContainerState.CONTAINER_EXITED);
  await runtime.stopPodSandbox(before.sandboxes[0]?.id ?? "", never);
  await pass(pod);
  const links = old.map(({ id, labels }) => `${labels[containerNameLabel]} ${id}`);
  assert.deepEqual(unlogged.toSorted(), links.toSorted());
});

test("a container with a failed probe is stopped with the probe's grace period and restarted in the same pass", async () => {
  let condemned = "";
  const { runtime, see, pass, states } = rig({
    probes: { failedProbe: (_uid, _name, id) => (id === condemned ? "liveness" : undefined), started: () => undefined },
  });
  const livenessProbe = { exec: { command: ["x"] }, terminationGracePeriodSeconds: 9 };
  const pod = aPod({ containers: [aContainer("a", { livenessProbe }), aContainer("b")] });
  await pass(pod);
  condemned = (await see()).containers.find(({ labels }) => labels[containerNameLabel] === "a")?.id ?? "";
  assert.deepEqual(await pass(pod), {});
  assert.deepEqual(await states(), [exited("a"), running("a", 1), running("b")]);
  const stops = runtime.calls.filter(({ verb }) => verb === "stopContainer");
  assert.deepEqual(
    stops.map(({ request }) => request),
    [[condemned, 9]],
  );
  assert.deepEqual(await pass(pod), { untouched: true });
});

test("a container that cannot start does not block others; its reason is kept until it starts", async () => {
  const { pass, states, starts } = rig();
  const pod = aPod({ containers: [aContainer("a", { image: "none" }), aContainer("b")] });
  const { error, retryAt } = await pass(pod);
  assert.deepEqual(
    [(error as StartError).reason, retryAt, await states()],
    ["ErrImagePull", undefined, [running("b")]],
  );
  assert.deepEqual(starts.get("uid-1")?.failures.get("a"), { reason: "ErrImagePull", message: "not there" });
  await pass(aPod({ containers: [aContainer("a"), aContainer("b")] }));
  assert.deepEqual([await states(), starts.get("uid-1")?.failures.size ?? 0], [[running("a"), running("b")], 0]);
});

test("a crash-looping container waits for its back-off, and the pass returns when to retry", async () => {
  const { clock, runtime, see, pass, states } = rig();
  const pod = aPod();
  const endNewest = async () => runtime.exitContainer((await see()).containers[0]?.id ?? "", 1);
  await pass(pod);
  await endNewest();
  assert.deepEqual(await pass(pod), {});
  await clock.advance(1000);
  await endNewest();
  const { error, retryAt } = await pass(pod);
  assert.deepEqual([(error as StartError).reason, retryAt], ["CrashLoopBackOff", clock.now() + 10_000]);
  await clock.advance(10_000);
  await pass(pod);
  assert.deepEqual((await states()).at(-1), running("c", 2));
});

test("a changed container is replaced; the other container keeps running", async () => {
  const { runtime, events, see, pass, states } = rig();
  await pass(aPod({ containers: [aContainer("a"), aContainer("b")] }));
  const kept = (await see()).containers.find(({ labels }) => labels[containerNameLabel] === "b")?.id;
  await pass(aPod({ containers: [aContainer("a", { image: "busybox:2" }), aContainer("b")] }));
  assert.deepEqual(await states(), [exited("a"), running("a", 1), running("b")]);
  assert.ok(
    (await see()).containers.some(({ id, state }) => id === kept && state === ContainerState.CONTAINER_RUNNING),
  );
  assert.ok(events.lines.includes("Normal Killing Container a definition changed, will be restarted"));
  assert.equal(runtime.calls.filter(({ verb }) => verb === "stopContainer").length, 1);
});

test("a dead sandbox is replaced with the next attempt, and all its containers start again", async () => {
  const { runtime, events, ready, see, pass, states } = rig();
  await pass(aPod());
  runtime.killSandbox((await see()).sandboxes[0]?.id ?? "");
  await pass(aPod());
  assert.deepEqual(
    (await see()).sandboxes.map(({ metadata, state }) => [metadata?.attempt, state]),
    [
      [1, 0],
      [0, 1],
    ],
  );
  assert.ok((await states()).includes(running("c", 1)));
  assert.deepEqual(ready, [1, "look"], "an inspection is needed to know the rest of the pod");
  assert.ok(events.lines.includes("Normal SandboxChanged Pod sandbox changed, it will be killed and re-created."));
});

test("an aborted pass rejects and leaves nothing half-created", async () => {
  const { runtime, pass, see } = rig();
  const stop = new AbortController();
  const release = runtime.hold("runPodSandbox");
  const cut = assert.rejects(pass(aPod(), stop.signal), { code: "cancelled" });
  await new Promise(setImmediate);
  stop.abort();
  release();
  await cut;
  const { sandboxes, containers } = await see();
  assert.deepEqual([sandboxes.length, containers.length], [1, 0]);
});

test("a killed pod has no running container and no ready sandbox", async () => {
  const { podRuntime, see, pass, states } = rig();
  await pass(aPod());
  await podRuntime.kill(await see(), aPod(), 5, never);
  assert.deepEqual([await states(), (await see()).sandboxes.map(({ state }) => state)], [[exited("c")], [1]]);
});

test("looks up images and old logs while the sandbox is created; linking a log blocks nothing", async () => {
  const linked = Promise.withResolvers<void>();
  const asked: string[] = [];
  const { first, runtime, see } = rig({
    findPresentImage: async (_pod, { name }) => {
      asked.push(`image of ${name}`);
      if (name === "b") throw new Error("not now");
      return Image.fromPartial({ id: "seen" });
    },
    loggedContainers: async () => (asked.push("logs"), new Set(["b"])),
    ensureImages: async ({ container, presentImage }) => {
      asked.push(`${container.name} has ${presentImage?.id}`);
      return { imageRef: "busybox", volumes: new Map() };
    },
    restartCountFromLogs: async (_pod, { name }) => (asked.push(`count of ${name}`), 4),
    linkLog: () => linked.promise,
  });
  const release = runtime.hold("runPodSandbox");
  const syncing = first(aPod({ containers: [aContainer("a"), aContainer("b")] }));
  await new Promise(setImmediate);
  assert.deepEqual(asked.splice(0), ["logs", "image of a", "image of b"]);
  release();
  const { made, rest } = await syncing;
  assert.deepEqual(asked, ["a has seen", "b has undefined", "count of b"]);
  assert.deepEqual([made?.sandboxes, made?.containers.length], [(await see()).sandboxes.map(({ id }) => id), 2]);
  let done = false;
  void rest?.then(() => (done = true));
  await new Promise(setImmediate);
  assert.equal(done, false);
  linked.resolve();
  await rest;
});

test("a failed pass ends only after its containers' files have been created, so that no file outlives the pod", async () => {
  const created = Promise.withResolvers<CreatedFiles>();
  const { first, runtime } = rig({ createContainerFiles: () => created.promise });
  runtime.failNext("runPodSandbox", new Error("no network"));
  let ended = false;
  const pass = first(aPod()).finally(() => (ended = true));
  await new Promise(setImmediate);
  assert.equal(ended, false);
  created.resolve({ instance: "0", hostsFile: "" });
  assert.equal((await pass).error?.message, "no network");
});

test("prefetches nothing for a restarting container, as its back-off may prevent the restart", async () => {
  const asked: string[] = [];
  const { runtime, see, pass, states } = rig({
    findPresentImage: async () => void asked.push("image"),
    loggedContainers: async () => (asked.push("logs"), new Set<string>()),
  });
  await pass(aPod());
  assert.deepEqual(asked.splice(0), ["logs", "image"]);
  runtime.exitContainer((await see()).containers[0]?.id ?? "", 1);
  await pass(aPod());
  assert.deepEqual([await states(), asked], [[exited("c"), running("c", 1)], []]);
});

test("does not fetch prefetched facts again; repeats a failed prefetch, and reports only the second failure", async () => {
  let asked = 0;
  let fails = true;
  const { first, events } = rig({
    configureSandbox: async () => {
      asked += 1;
      if (fails) throw new Error("no resolver");
      return PodSandboxConfig.fromPartial({ metadata: { name: "p", namespace: "default", uid: "uid-1", attempt: 0 } });
    },
  });
  const { error } = await first(aPod());
  assert.deepEqual([error?.message, asked], ["no resolver", 2]);
  assert.match(events.lines.join(), /FailedCreatePodSandBox Failed to create pod sandbox: .*no resolver/);
  fails = false;
  asked = 0;
  await first(aPod());
  assert.equal(asked, 1);
});

test("a started sidecar lets the next one start at once; a failed one does not block it", async () => {
  const sidecar = (name: string, image = "busybox") => aContainer(name, { restartPolicy: "Always", image });
  const { pass, states } = rig();
  const pod = aPod({ initContainers: [sidecar("s1"), sidecar("s2")] });
  assert.deepEqual(await pass(pod), { again: true });
  assert.deepEqual(await pass(pod), { again: true });
  assert.deepEqual(await pass(pod), {});
  assert.deepEqual(await states(), [running("c"), running("s1"), running("s2")]);
  assert.deepEqual(await pass(pod), { untouched: true });
});

test("an ephemeral container starts in the existing sandbox, is counted once, and never restarts", async () => {
  const sorts: string[] = [];
  const { runtime, see, pass, states } = rig({
    measures: { ...unmeasured.starts, containerStarting: (sort) => void sorts.push(sort) },
  });
  const pod = aPod();
  await pass(pod);
  const debugged = aPod({ ephemeralContainers: [{ ...aContainer("e"), targetContainerName: "c" }] });
  assert.deepEqual(await pass(debugged), {});
  assert.deepEqual(
    [await states(), sorts],
    [
      [running("c"), running("e")],
      ["container", "ephemeral_container"],
    ],
  );
  const { id } = (await see()).containers.find(({ metadata }) => metadata?.name === "e") ?? assert.fail("not made");
  await runtime.stopContainer(id, 1, never);
  assert.deepEqual(await pass(debugged), { untouched: true });
});

test("a pod that restarts all containers removes them one by one without running hooks; its sandbox stays", async () => {
  let anew = false;
  const hooks: string[] = [];
  const { runtime, events, see, pass } = rig({
    isRestartingAll: () => anew,
    hooks: { run: async (_hook, { container }) => void hooks.push(container.name) },
  });
  const lifecycle = { preStop: { exec: { command: ["bye"] } } };
  const pod = aPod({ containers: [aContainer("a", { lifecycle }), aContainer("b")] });
  await pass(pod);
  const { sandboxes } = await see();
  anew = true;
  assert.deepEqual(await pass(pod), { again: true });
  const left = await see();
  assert.deepEqual([left.containers, left.sandboxes[0]?.id, hooks], [[], sandboxes[0]?.id, []]);
  assert.deepEqual(
    runtime.calls.filter(({ verb }) => verb === "stopContainer").map(({ request }) => (request as unknown[])[1]),
    [2, 2],
  );
  assert.deepEqual(
    events.lines.filter((line) => line.includes("Killing")),
    ["Normal Killing killing", "Normal Killing killing"],
  );
  anew = false;
  assert.deepEqual(await pass(pod), {});
  assert.equal((await see()).containers.length, 2);
});

test("while its postStart hook runs, a container counts as starting, and later containers wait", async () => {
  const ended = Promise.withResolvers<void>();
  const { starts, first, states } = rig({ hooks: { run: () => ended.promise } });
  const pod = aPod({
    containers: [aContainer("a", { lifecycle: { postStart: { sleep: { seconds: 1 } } } }), aContainer("b")],
  });
  const syncing = first(pod);
  while ((await states()).length === 0) await new Promise(setImmediate);
  assert.deepEqual([starts.get("uid-1")?.inProgress.has("a"), await states()], [true, [running("a")]]);
  ended.resolve();
  await syncing;
  assert.deepEqual([starts.get("uid-1")?.inProgress.has("a"), await states()], [false, [running("a"), running("b")]]);
});

describe("a new sandbox's status", () => {
  const image = async () => Image.fromPartial({ id: "seen" });
  const readsIp = aContainer("c", { env: [{ name: "IP", valueFrom: { fieldRef: { fieldPath: "status.podIP" } } }] });
  const verbs = (calls: readonly { readonly verb: string }[]) => calls.map(({ verb }) => verb);
  const settled = () => new Promise((done) => setTimeout(done, 5));

  it("is read while the first container is created, which starts only once the sandbox has been reported", async () => {
    const { first, runtime, ready, events } = rig({ findPresentImage: image });
    const release = runtime.hold("podSandboxStatus");
    const syncing = first(aPod());
    await settled();
    assert.deepEqual(verbs(runtime.calls), ["runPodSandbox", "podSandboxStatus", "createContainer"]);
    assert.deepEqual([ready, events.lines], [[], []]);
    release();
    await syncing;
    assert.deepEqual([verbs(runtime.calls).slice(3), ready], [["startContainer"], [1]]);
  });
  for (const [title, container, findPresentImage] of [
    ["whose environment has the pod's address", readsIp, image],
    ["whose image may have to be pulled", aContainer("c"), async () => undefined],
  ] as const)
    it(`is read before a container is created ${title}`, async () => {
      const { first, runtime } = rig({ findPresentImage });
      const release = runtime.hold("podSandboxStatus");
      const syncing = first(aPod({ containers: [container] }));
      await settled();
      assert.deepEqual(verbs(runtime.calls), ["runPodSandbox", "podSandboxStatus"]);
      release();
      await syncing;
      assert.deepEqual(verbs(runtime.calls).slice(2), ["createContainer", "startContainer"]);
    });
  it("ends the pass with the kubelet's event if it cannot be read; the created container is never started", async () => {
    const { first, runtime, events, starts } = rig({ findPresentImage: image });
    runtime.failNext("podSandboxStatus", new Error("gone"));
    const { error, made } = await first(aPod());
    assert.deepEqual([error?.message, made?.sandboxes.length, made?.containers], ["gone", 1, []]);
    assert.deepEqual(events.lines, ["Warning FailedPodSandBoxStatus Unable to get pod sandbox status: gone"]);
    assert.ok(!verbs(runtime.calls).includes("startContainer"));
    assert.equal(starts.get("uid-1")?.failures.size ?? 0, 0);
  });
  it("without an address leads to a container without the pod's hosts file", async () => {
    const configured: (string | undefined)[] = [];
    const { first, states } = rig({
      findPresentImage: image,
      configureSandbox: async ({ metadata: { name, namespace, uid } }, attempt) =>
        PodSandboxConfig.fromPartial({
          metadata: { name, namespace, uid, attempt },
          linux: { securityContext: { namespaceOptions: { network: NamespaceMode.NODE } } },
        }),
      configure: async ({ container, created }, { imageRef }, attempt) => {
        configured.push(created?.instance);
        return {
          config: ContainerConfig.fromPartial({
            metadata: { name: container.name, attempt },
            image: { image: imageRef },
            labels: { [containerNameLabel]: container.name },
          }),
          hostsWritten: Promise.resolve(),
        };
      },
    });
    await first(aPod());
    assert.deepEqual([configured, await states()], [["0", undefined], [running("c")]]);
  });
});
