import assert from "node:assert/strict";
import { test } from "node:test";
import { createGarbage } from "../../../src/gc/garbage.ts";
import { ContainerState, PodSandboxState } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger } from "../../../src/lib/log.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { aContainer, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { fakePresence } from "../../fakes/presence.ts";

const { CONTAINER_EXITED: exited, CONTAINER_RUNNING: running, CONTAINER_CREATED: created } = ContainerState;
const { SANDBOX_NOTREADY: notReady } = PodSandboxState;
const never = new AbortController().signal;

/** @param inUse the sandbox of each container that the runtime still has. */
function rig(pod: RuntimePod, inUse: readonly string[] = []) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const target = fakePresence();
  const calls: string[] = [];
  const said = (what: string) => async (id: string) => void calls.push(`${what} ${id}`);
  const runtime = {
    removeContainer: said("remove"),
    stopPodSandbox: said("stop sandbox"),
    removePodSandbox: said("remove sandbox"),
    listContainers: async () => inUse.map((podSandboxId) => ({ podSandboxId })) as never,
  };
  const deps = {
    runtime,
    fs: host.fs,
    clock,
    cache: { get: () => pod, list: () => [pod] },
    inspector: { inspect: async () => pod },
    presence: target.present,
    podLogsDir: "/pods",
    containerLogsDir: "/links",
    log: createLogger(0, { write: () => undefined }),
  };
  return { clock, host, calls, runtime, target, garbage: createGarbage(deps) };
}

const c = aContainer("c");

test("each minute dead containers go, all but the newest of a name; their logs and the links to them go too, rotated ones as well", async () => {
  const [first, second, last] = [0, 1, 2].map((attempt) =>
    aStatus(c, exited, { logPath: `/pods/ns_p_uid-1/c/${attempt}.log` }),
  );
  const other = aStatus(aContainer("d"), exited);
  const { clock, host, calls, garbage } = rig(
    observe(
      [aSandbox()],
      [first, second, last, other].filter((each) => each !== undefined),
    ),
  );
  for (const name of ["0.log", "0.log.20260101-000000", "0.log.20260101-000000.gz", "1.log", "10.log", "2.log"])
    host.files.put(`/pods/ns_p_uid-1/c/${name}`);
  await host.fs.apply([{ do: "mkdir", path: "/links" }]);
  await host.fs.apply(
    ["0.log", "2.log"].map((name) => ({ do: "symlink", path: `/links/${name}`, target: `/pods/ns_p_uid-1/c/${name}` })),
  );
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  await clock.advance(59_000);
  assert.deepEqual(calls, []);
  await clock.advance(1_000);
  stop.abort();
  await work;
  assert.deepEqual(new Set(calls), new Set([`remove ${first?.id}`, `remove ${second?.id}`]));
  assert.deepEqual(host.files.tree("/pods/ns_p_uid-1/c"), ["/pods/ns_p_uid-1/c/10.log", "/pods/ns_p_uid-1/c/2.log"]);
  assert.deepEqual(host.files.tree("/links"), ["/links/2.log"]);
});

test("nothing is collected while the target is lost", async () => {
  const dead = ["old", "new"].map((id) => aStatus(c, exited, { id }));
  const { clock, calls, target, garbage } = rig(observe([aSandbox()], dead));
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  target.lose();
  await clock.advance(180_000);
  assert.deepEqual(calls, []);
  target.find();
  await clock.advance(0);
  assert.deepEqual(calls, ["remove old"]);
  stop.abort();
  await work;
});

test("each minute links to logs that somebody removed go, but not those of containers that live", async () => {
  const alive = aStatus(c, running, { id: "alive" });
  const dead = aStatus(aContainer("d"), exited, { id: "dead" });
  const { clock, host, calls, garbage } = rig(observe([aSandbox()], [alive, dead]));
  await host.fs.apply([
    { do: "mkdir", path: "/links" },
    ...[alive.id, dead.id, "stranger"].map(
      (id) => ({ do: "symlink", path: `/links/p_ns_c-${id}.log`, target: "/pods/none/0.log" }) as const,
    ),
  ]);
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  await clock.advance(60_000);
  stop.abort();
  await work;
  assert.deepEqual(calls, []);
  assert.deepEqual(host.files.tree("/links"), [`/links/p_ns_c-${alive.id}.log`]);
});

test("running and created containers stay, however old", async () => {
  const { clock, calls, garbage } = rig(
    observe([aSandbox()], [aStatus(c, running), aStatus(c, created), aStatus(c, exited)]),
  );
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  await clock.advance(60_000);
  stop.abort();
  await work;
  assert.deepEqual(calls, []);
});

test("old sandboxes go when they are not ready and no container is theirs; the newest stays", async () => {
  const [used, spare, ready, newest] = [
    aSandbox({ state: notReady }),
    aSandbox({ state: notReady }),
    aSandbox(),
    aSandbox({ state: notReady }),
  ];
  const { clock, calls, garbage } = rig(observe([used, spare, ready, newest], []), [used.id]);
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  await clock.advance(60_000);
  stop.abort();
  await work;
  assert.deepEqual(calls, [`remove sandbox ${spare.id}`]);
});

test("a pod that is gone leaves nothing: containers, sandboxes, logs of its UID alone, dangling links", async () => {
  const sandbox = aSandbox();
  const status = aStatus(c, exited, { logPath: "/pods/ns_p_uid-1/c/0.log" });
  const { host, calls, runtime, garbage } = rig(observe([sandbox], [status]));
  host.files.put("/pods/ns_p_uid-1/c/0.log");
  host.files.put("/pods/ns_p_uid-2/c/0.log");
  await host.fs.apply([
    { do: "mkdir", path: "/links" },
    { do: "symlink", path: "/links/gone.log", target: "/pods/ns_p_uid-1/c/0.log" },
    { do: "symlink", path: "/links/stays.log", target: "/pods/ns_p_uid-2/c/0.log" },
  ]);
  runtime.removeContainer = async () => Promise.reject(new CodedError("not_found", "gone already"));
  await garbage.podGone("uid-1", never);
  assert.deepEqual(calls, [`stop sandbox ${sandbox.id}`, `remove sandbox ${sandbox.id}`]);
  assert.deepEqual(
    [host.files.tree("/pods"), host.files.tree("/links")],
    [["/pods/ns_p_uid-2", "/pods/ns_p_uid-2/c", "/pods/ns_p_uid-2/c/0.log"], ["/links/stays.log"]],
  );
});

test("one pod whose leftovers cannot be removed holds up no other round", async () => {
  const { clock, calls, runtime, garbage } = rig(observe([aSandbox()], [aStatus(c, exited), aStatus(c, exited)]));
  const remove = runtime.removeContainer;
  runtime.removeContainer = async () => Promise.reject(new CodedError("unavailable", "down"));
  const stop = new AbortController();
  const work = garbage.run(stop.signal);
  await clock.advance(60_000);
  runtime.removeContainer = remove;
  await clock.advance(60_000);
  stop.abort();
  await work;
  assert.equal(calls.length, 1);
});
