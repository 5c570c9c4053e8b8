import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState } from "../../../src/gen/cri.ts";
import type { PodStatus, Probe } from "../../../src/objects.ts";
import { fakeLink } from "../../fakes/link.ts";
import { aContainer, aSandbox, observe } from "../../fakes/pods.ts";
import { rig, uid } from "./rig.ts";

test("probes a container as soon as its verdict is read, then every period; not ready before its first success", async () => {
  const { probes, pod, clock, state, run, ready } = rig();
  probes.add(pod);
  await clock.advance(1000);
  const id = run();
  assert.equal(ready(id), "Failure");
  await clock.advance(0);
  assert.equal(ready(id), "Success");
  assert.deepEqual(state.woken, ["uid-1 probe"]);
  await clock.advance(20_000);
  assert.deepEqual(
    state.probed.map(({ at }) => at),
    [1000, 11_000, 21_000],
  );
  assert.deepEqual(state.woken, ["uid-1 probe"], "nothing when nothing flips");
});

test("probes a container within a period even if its verdict is not read", async () => {
  const { probes, pod, clock, run, ready } = rig();
  probes.add(pod);
  await clock.advance(5000);
  const id = run();
  await clock.advance(5000);
  assert.equal(ready(id), "Success");
});

test("verdicts change only at their thresholds", async () => {
  const { probes, pod, clock, state, run, ready } = rig({ probe: { failureThreshold: 3, successThreshold: 2 } });
  const id = run();
  probes.add(pod);
  await clock.advance(0);
  assert.equal(ready(id), "Failure", "one success of two");
  await clock.advance(10_000);
  assert.equal(ready(id), "Success");
  state.exitCode = 1;
  await clock.advance(20_000);
  assert.equal(ready(id), "Success", "two failures of three");
  state.exitCode = 0;
  await clock.advance(10_000);
  state.exitCode = 1;
  await clock.advance(20_000);
  assert.equal(ready(id), "Success", "a success resets the count");
  await clock.advance(10_000);
  assert.equal(ready(id), "Failure");
  assert.equal(state.woken.length, 2);
  assert.deepEqual(new Set(state.told), new Set(["Unhealthy"]));
});

test("the first probe runs after the initial delay, regardless of the target's clock", async () => {
  for (const offsetMs of [0, 3_600_000, -3_600_000]) {
    const { probes, pod, clock, state, run, ready } = rig({
      probe: { initialDelaySeconds: 25, periodSeconds: 10 },
      offsetMs,
    });
    probes.add(pod);
    const id = run(ContainerState.CONTAINER_RUNNING, { startedAt: BigInt(clock.now() + offsetMs) * 1_000_000n });
    ready(id);
    await clock.advance(24_900);
    assert.deepEqual(state.probed, []);
    await clock.advance(100);
    assert.equal(ready(id), "Success");
    await clock.advance(10_000);
    assert.deepEqual(
      state.probed.map(({ at }) => at),
      [25_000, 35_000],
    );
  }
});

test("a new container does not inherit the old one's streak", async () => {
  const { probes, pod, clock, state, run, ready } = rig({ probe: { failureThreshold: 2 } });
  const first = run();
  probes.add(pod);
  await clock.advance(0);
  assert.equal(ready(first), "Success");
  state.exitCode = 1;
  await clock.advance(10_000);
  const second = run();
  assert.equal(ready(second), "Failure");
  state.exitCode = 0;
  await clock.advance(0);
  assert.equal(ready(second), "Success");
  state.exitCode = 1;
  await clock.advance(10_000);
  assert.equal(ready(second), "Success", "one failure of two: the old container's does not count");
});

test("a container that is not running is not ready, wakes nothing and is not probed; it recovers when it runs again", async () => {
  for (const [restartPolicy, exitCode] of [
    ["Always", 0],
    ["Never", 1],
    ["OnFailure", 0],
  ] as const) {
    const { probes, pod, clock, state, run, ready } = rig({ spec: { restartPolicy } });
    const id = run();
    probes.add(pod);
    await clock.advance(0);
    const last = state.cached?.containers[0];
    assert.ok(last);
    state.cached = observe([aSandbox()], [{ ...last, state: ContainerState.CONTAINER_EXITED, exitCode }]);
    const before = { woken: state.woken.length, probed: state.probed.length };
    await clock.advance(60_000);
    assert.equal(ready(id), "Failure");
    assert.deepEqual({ woken: state.woken.length, probed: state.probed.length }, before);
    assert.equal(
      clock.pending,
      restartPolicy === "Always" ? 1 : 0,
      `${restartPolicy}: timers only where it will run again`,
    );
    const next = run();
    ready(next);
    await clock.advance(0);
    assert.equal(ready(next), "Success");
  }
});

test("a probe that errors changes nothing", async () => {
  const { probes, pod, clock, state, run, ready } = rig({
    probe: { failureThreshold: 1, exec: undefined, tcpSocket: { port: "nameless" } },
  });
  const id = run();
  probes.add(pod);
  await clock.advance(30_000);
  assert.equal(ready(id), "Failure");
  assert.deepEqual(state.woken, []);
});

test("a network probe waits for the pod IP; after that a failure counts", async () => {
  const { probes, pod, clock, state, run } = rig({ probe: { exec: undefined, tcpSocket: { port: 80 } } });
  run();
  assert.ok(state.cached);
  state.cached = { ...state.cached, ips: [] };
  probes.add(pod);
  await clock.advance(10_000);
  assert.deepEqual(state.told, []);
  state.held = { podIP: "192.168.0.1" };
  await clock.advance(10_000);
  assert.deepEqual(state.told, ["Unhealthy"]);
});

test("a network probe uses the pod's first address of the host's first family, as the status does", async () => {
  for (const [hostIPs, first] of [
    [["192.0.2.1", "fd00::1"], "10.88.0.2"],
    [["fd00::1", "192.0.2.1"], "fd00:88::2"],
  ] as const) {
    const { probes, pod, clock, state, run } = rig({ hostIPs, probe: { exec: undefined, tcpSocket: { port: 80 } } });
    run();
    assert.ok(state.cached);
    state.cached = { ...state.cached, ips: ["10.88.0.2", "fd00:88::2"] };
    probes.add(pod);
    await clock.advance(10_000);
    assert.deepEqual(state.dialled[0], { host: first, port: 80 });
  }
});

const statusIn = (id: string, told: { readonly ready: boolean; readonly started?: boolean }) => ({
  name: "c",
  containerID: `containerd://${id}`,
  image: "",
  imageID: "",
  restartCount: 0,
  ...told,
});
const wasReady = (id: string): PodStatus => ({
  containerStatuses: [statusIn(id, { ready: true })],
});

test("after a restart of the agent, a ready container stays ready until a verdict, without flapping", async () => {
  const { probes, pod, clock, state, run, ready } = rig({
    agentAgeMs: 0,
    jitter: (low, high) => (low + high) / 2,
    probe: { failureThreshold: 2 },
  });
  const id = run(ContainerState.CONTAINER_RUNNING, { startedAt: 1n });
  pod.status = wasReady(id);
  assert.equal(ready(id), "Success", "before the pod is added");
  probes.add(pod);
  assert.equal(ready(id), "Success", "before the first probe");
  await clock.advance(4900);
  assert.deepEqual(state.probed, [], "probes of an adopted container are spread over a period");
  await clock.advance(200);
  assert.equal(state.probed.length, 1);
  assert.equal(ready(id), "Success");
  assert.deepEqual(state.woken, []);
  state.exitCode = 1;
  await clock.advance(10_000);
  assert.equal(ready(id), "Success", "one failure of two");
  await clock.advance(10_000);
  assert.equal(ready(id), "Failure");
  assert.deepEqual(state.woken, ["uid-1 probe"]);
});

test("readiness of another container ID is not inherited", async () => {
  const other = rig();
  const id = other.run();
  other.pod.status = wasReady("another");
  assert.equal(other.ready(id), "Failure");
  other.state.held = {
    containerStatuses: [statusIn(id, { ready: false })],
  };
  other.pod.status = wasReady(id);
  assert.equal(other.ready(id), "Failure", "the node's own status takes precedence");
});

test("a static pod's readiness before a restart is read from its mirror pod", () => {
  const container = { startupProbe: { exec: { command: ["up"] } } };
  const { pod, clock, state, run, ready, started } = rig({ agentAgeMs: 0, container });
  Object.assign(pod.metadata, { annotations: { "kubernetes.io/config.source": "file" } });
  const old = { startedAt: BigInt(clock.now() - 10_001) * 1_000_000n };
  const id = run(ContainerState.CONTAINER_RUNNING, old);
  assert.deepEqual([started(id), ready(id)], [true, "Failure"], "no status yet: it started before the agent");
  state.held = { containerStatuses: [statusIn(id, { ready: false, started: true })] };
  state.mirror = { containerStatuses: [statusIn(id, { ready: true, started: false })] };
  assert.deepEqual(
    [started(id), ready(id)],
    [false, "Success"],
    "the mirror pod's status takes precedence over the node's own",
  );
  const next = run(ContainerState.CONTAINER_RUNNING, { ...old, id: "next" });
  assert.deepEqual([started(next), ready(next)], [false, "Failure"], "the mirror pod's status is of another container");
  state.mirror = undefined;
  const young = run(ContainerState.CONTAINER_RUNNING, { startedAt: BigInt(clock.now() - 9_000) * 1_000_000n });
  assert.equal(started(young), false, "it may have started after the agent");
});

test("containers without a readiness probe have no verdict", () => {
  const { probes, pod } = rig({ spec: { containers: [aContainer("plain")] } });
  probes.add(pod);
  assert.equal(probes.readiness(uid, "plain", "x"), undefined);
  assert.equal(probes.readiness("unknown", "c", "x"), undefined);
});

test("remove(), the end of the pod's record and the end of run() stop the workers", async () => {
  for (const end of ["remove", "row", "run"] as const) {
    const { probes, endRow, pod, clock, state, run } = rig();
    run();
    const stop = new AbortController();
    const running = probes.run(stop.signal);
    probes.add(pod);
    probes.add(pod);
    await clock.advance(10_000);
    assert.equal(state.probed.length, 2, "adding twice starts one worker");
    await clock.advance(10_000);
    assert.equal(state.probed.length, 3);
    if (end === "remove") probes.remove(uid);
    if (end === "row") endRow();
    stop.abort();
    await running;
    await clock.advance(60_000);
    assert.equal(state.probed.length, 3, end);
    assert.equal(clock.pending, 0);
  }
});

/** A ready container, on a target whose link can be cut, probed every 10 s. */
async function linked(probe: Partial<Probe>) {
  const link = fakeLink();
  const rigged = rig({ probe, link, jitter: (low, high) => (low + high) / 2 });
  const stop = new AbortController();
  const running = rigged.probes.run(stop.signal);
  const id = rigged.run();
  rigged.probes.add(rigged.pod);
  await rigged.clock.advance(0);
  assert.equal(rigged.ready(id), "Success");
  return {
    ...rigged,
    link,
    id,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await running;
      assert.equal(link.listeners, 0);
    },
  };
}

test("while the target is unreachable, nothing is probed and ready containers stay ready", async () => {
  await using t = await linked({ failureThreshold: 1 });
  t.link.cut();
  t.state.answers = false;
  await t.clock.advance(600_000);
  assert.deepEqual([t.ready(t.id), t.state.probed.length, t.state.told], ["Success", 1, []]);
});

test("an undetected connection loss is not a container failure", async () => {
  await using t = await linked({ failureThreshold: 1 });
  t.state.answers = false;
  await t.clock.advance(30_000);
  assert.deepEqual([t.ready(t.id), t.state.probed.length, t.state.told], ["Success", 4, []]);
});

test("while the target's locks are lost, nothing is probed; a probe that was refused for this reason gives no verdict", async () => {
  await using t = await linked({ failureThreshold: 1 });
  const lose = () => {
    t.state.isClaimLost = true;
    t.lost.send();
  };
  t.state.onProbe = lose;
  await t.clock.advance(10_000);
  t.state.onProbe = () => {};
  await t.clock.advance(60_000);
  assert.deepEqual([t.ready(t.id), t.state.probed.length, t.state.told], ["Success", 4, []]);
  t.state.isClaimLost = false;
  await t.clock.advance(20_000);
  assert.deepEqual([t.ready(t.id), t.state.probed.length, t.state.told], ["Success", 5, []]);
});

test("a refused connection is a failure while the link is up", async () => {
  const link = fakeLink();
  const { probes, pod, clock, state, run, ready } = rig({
    probe: { exec: undefined, tcpSocket: { port: 80 }, failureThreshold: 1 },
    link,
  });
  const id = run(ContainerState.CONTAINER_RUNNING, { startedAt: 1n });
  pod.status = wasReady(id);
  probes.add(pod);
  await clock.advance(0);
  assert.deepEqual([ready(id), state.told], ["Failure", ["Unhealthy"]]);
});

test("after a reconnect, probes start again, spread over a period, ignoring earlier failures", async () => {
  await using t = await linked({ failureThreshold: 2 });
  t.state.exitCode = 1;
  await t.clock.advance(10_000);
  assert.deepEqual(t.state.told, ["Unhealthy"], "one failure of two");
  t.link.cut();
  await t.clock.advance(1_000);
  t.link.mend();
  await t.clock.advance(9_000);
  assert.equal(t.state.probed.length, 2, "no probe at the moment of the reconnect");
  await t.clock.advance(5_000);
  assert.deepEqual([t.state.probed.length, t.ready(t.id)], [3, "Success"]);
  await t.clock.advance(10_000);
  assert.equal(t.ready(t.id), "Failure", "two in a row since then");
});
