import assert from "node:assert/strict";
import { test } from "node:test";
import { claimTarget } from "../../../src/process/claim.ts";
import { createIdleTime, type RootClaimant } from "../../../src/host/root-owner.ts";
import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { HostProcess } from "../../../src/seams/host.ts";
import { type Sharing, TargetError } from "../../../src/seams/provider.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { lockingShell } from "../../fakes/flock.ts";
import { type FakeHost, fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";
import { silent } from "../api/fake-client.ts";

const node = { nodeName: "n1", rootDir: "/var/lib/kubelet", kubelet: { podLogsDir: "/var/log/pods" } };
const health = { host: "127.0.0.1", port: 10_248 };
const socket = "/run/containerd/containerd.sock";

/** A machine with a runtime; `deps` are those of a node that has it to itself, or shares it. */
function machine() {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  host.program("sh", lockingShell());
  host.files.put(socket, { kind: "socket" });
  const runtimeSocket = () => Promise.resolve(socket);
  const deps = (sharing: Sharing = "exclusive") => ({ target: { host, sharing, runtimeSocket }, clock, log: silent });
  return { clock, host, deps };
}

/** An HTTP server's answer on the health port, or silence. */
function listening(host: FakeHost, answer: string | undefined): Promise<AsyncDisposable> {
  return host.listen(health, (connection) => connection.once("data", () => void (answer && connection.end(answer))));
}

test("creates a private root directory, and locks it until the claim is released", async () => {
  const { host, deps } = machine();
  const claim = await claimTarget(deps(), node, never);
  assert.equal((await host.fs.stat("/var/lib/kubelet/graftlet")).mode, 0o700);
  await assert.rejects(claimTarget(deps(), node, never), {
    code: "failed_precondition",
    message:
      '--root-dir "/var/lib/kubelet" is in use by another graftlet (RuntimeInUse): stop that one, or use another directory',
  });
  await claim[Symbol.asyncDispose]();
  await using _again = await claimTarget(deps(), node, never);
});

test("rejects an unwritable root directory in one sentence", async () => {
  const { host, deps } = machine();
  host.files.put("/var/lib", { data: "a file" });
  const refused = await claimTarget(deps(), node, never).catch((error: unknown) => error);
  assert.match(
    String(refused),
    /--root-dir "\/var\/lib\/kubelet" is not writable \(.*\): make it writable, or use another directory$/,
  );
});

test("reports each problem of the root directory with its own reason and remedy", async () => {
  const full = machine();
  const apply = async () => {
    throw new CodedError("resource_exhausted", "mkdir: /var/lib/kubelet: No space left on device");
  };
  const { target, ...rest } = full.deps();
  const cramped = { ...target, host: { ...full.host, fs: { ...full.host.fs, apply } } };
  const noSpace = await claimTarget({ ...rest, target: cramped }, node, never).catch((error: unknown) => error);
  assert.ok(noSpace instanceof TargetError);
  assert.equal(noSpace.reason, "RootDirFull");
  assert.match(noSpace.message, /has no space left \(.*\): free some on the target, or use another directory$/);
});

test("reports SudoNeedsPassword if the root directory is not writable because sudo asks for a password", async () => {
  const sentence = "User ubuntu is not root and its sudo asks for a password: add a line.";
  const claimed = async (sudoNeedsPassword: boolean) => {
    const { deps } = machine();
    const { target, ...rest } = deps();
    const apply = async () => {
      throw new CodedError("permission_denied", "mkdir: /var/lib/kubelet: Permission denied");
    };
    const missingPrivileges = async () => ({ messages: [sentence], sudoNeedsPassword, unsupported: {} });
    const restricted = { ...target, missingPrivileges, host: { ...target.host, fs: { ...target.host.fs, apply } } };
    const error = await claimTarget({ ...rest, target: restricted }, node, never).catch((why: unknown) => why);
    assert.ok(error instanceof TargetError);
    return error;
  };
  assert.equal((await claimed(false)).reason, "RootDirUnusable");
  const { reason, message } = await claimed(true);
  assert.equal(reason, "SudoNeedsPassword");
  assert.match(message, /add a line\. Currently, --root-dir "\/var\/lib\/kubelet" is not writable/);
});

test("rejects a target where a kubelet responds, and releases the root directory", async () => {
  const { host, deps } = machine();
  {
    await using _kubelet = await listening(host, "HTTP/1.1 200 OK\r\n\r\nok");
    await assert.rejects(claimTarget(deps(), node, never), {
      code: "failed_precondition",
      message: /another agent answers on the target's port 10248 \(RuntimeInUse\)/,
    });
  }
  await using _claim = await claimTarget(deps(), node, never);
});

test("ignores listeners on the kubelet's port that do not speak HTTP or do not respond", async () => {
  for (const answer of ["SSH-2.0-x\r\n", undefined]) {
    const { clock, host, deps } = machine();
    await using _other = await listening(host, answer);
    const claiming = claimTarget(deps(), node, never);
    await clock.advance(2_000);
    await using _claim = await claiming;
  }
});

test("allows nodes that share their runtime to coexist, but not with a node that uses it exclusively", async () => {
  const { host, deps } = machine();
  const says = (who: string) => `HTTP/1.1 200 OK\r\nServer: ${who}\r\nContent-Length: 2\r\n\r\nok`;
  const refused = { code: "failed_precondition", message: /RuntimeInUse/ };
  {
    await using _neighbour = await listening(host, says("graftlet (shared)"));
    await using _claim = await claimTarget(deps("shared"), node, never);
  }
  {
    await using _neighbour = await listening(host, says("graftlet (shared)"));
    await assert.rejects(claimTarget(deps(), node, never), refused);
  }
  await using _neighbour = await listening(host, says("graftlet (exclusive)"));
  await assert.rejects(claimTarget(deps("shared"), node, never), refused);
});

test("ignores the health endpoints of its own process and of nodes with other runtimes", async () => {
  const { host, deps } = machine();
  const says = (who: string, instance: string) =>
    `HTTP/1.1 200 OK\r\nServer: ${who}\r\nGraftlet-Instance: ${instance}\r\nContent-Length: 2\r\n\r\nok`;
  const own = { ...deps(), instance: "A-1" };
  {
    await using _own = await listening(host, says("graftlet (exclusive)", "a-1"));
    await using _claim = await claimTarget(own, node, never);
  }
  {
    await using _elsewhere = await listening(host, says("graftlet (elsewhere)", "b"));
    await using _claim = await claimTarget(own, node, never);
  }
  await using _other = await listening(host, says("graftlet (exclusive)", "b"));
  await assert.rejects(claimTarget(own, node, never), { code: "failed_precondition", message: /RuntimeInUse/ });
});

test("detects conflicts of nodes with different root directories by the runtime's lock, unless all share it", async () => {
  const { deps } = machine();
  const other = { ...node, nodeName: "n2", rootDir: "/srv/other" };
  const refused = {
    code: "failed_precondition",
    message: /^the container runtime in \/run\/containerd on the target is in use by another graftlet \(RuntimeInUse\)/,
  };
  {
    await using _first = await claimTarget(deps(), node, never);
    await assert.rejects(claimTarget(deps(), other, never), refused);
    await assert.rejects(claimTarget(deps("shared"), other, never), refused);
  }
  {
    await using _first = await claimTarget(deps("shared"), node, never);
    await assert.rejects(claimTarget(deps(), other, never), refused);
    await using _second = await claimTarget(deps("shared"), other, never);
  }
  await using _again = await claimTarget(deps(), other, never);
});

test("locks the root directory even if the runtime is not detected yet", async () => {
  const { deps } = machine();
  const { target, ...rest } = deps();
  const runtimeSocket = () => Promise.reject(new CodedError("failed_precondition", "none answers"));
  await using _claim = await claimTarget({ ...rest, target: { ...target, runtimeSocket } }, node, never);
});

test("re-acquires a lost claim once the previous holder has ended, but not if another agent has it", async () => {
  const { clock, host, deps } = machine();
  const spawned: HostProcess[] = [];
  const spawn: typeof host.spawn = async (argv, signal) => {
    const process = await host.spawn(argv, signal);
    spawned.push(process);
    return process;
  };
  const { target, ...rest } = deps();
  await using claim = await claimTarget({ ...rest, target: { ...target, host: { ...host, spawn } } }, node, never);
  await claim.renew(never);
  assert.equal(spawned.length, 1, "one that stands is not taken again");
  let losses = 0;
  claim.onLost(() => void losses++);
  assert.deepEqual([claim.isLost(), claim.isVerified()], [false, true]);
  spawned[0]?.kill();
  await clock.advance(1);
  assert.deepEqual([claim.isLost(), claim.isVerified(), losses], [true, false, 1]);
  await assert.rejects(claim.verify(), { code: "unavailable" });
  const rival = await claimTarget(deps(), node, never);
  const renewing = claim.renew(never);
  await clock.advance(5_000);
  await rival[Symbol.asyncDispose]();
  await clock.advance(1_000);
  await renewing;
  assert.deepEqual([claim.isLost(), claim.isVerified()], [false, true]);
  await assert.rejects(claimTarget(deps(), node, never), { message: /RuntimeInUse/ });

  spawned.at(-1)?.kill();
  await clock.advance(1);
  await using _other = await claimTarget(deps(), node, never);
  const refused = assert.rejects(claim.renew(never), { message: /in use by another graftlet \(RuntimeInUse\)/ });
  await clock.advance(30_000);
  await refused;
});

test("records the node's name and initially missing directories in the root directory", async () => {
  const { host, deps } = machine();
  host.files.put("/var/log/syslog", {});
  const record = () => JSON.parse(host.files.text("/var/lib/kubelet/graftlet/node.json")) as unknown;
  const made = [
    "/var/lib",
    "/var/log/pods",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/lib/kubelet/pods",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet/plugins_registry",
  ];
  await (await claimTarget(deps(), node, never))[Symbol.asyncDispose]();
  assert.deepEqual(record(), { version: 1, node: "n1", made });
  await using _claim = await claimTarget(deps(), { ...node, nodeName: "n2" }, never);
  assert.deepEqual(record(), { version: 1, node: "n2", made });
});

/** An object of this namespace and name, whose UID is the namespace's and `uid`. */
function claimantOf(clock: Clock, { namespace = "a", name = "n1", uid = "1", takesOver = "" } = {}): RootClaimant {
  return {
    object: { namespace, name, uid: `${namespace}-${uid}` },
    takesOver: () => takesOver,
    idle: createIdleTime(clock),
  };
}

test("refuses a root directory of an object in another namespace, even while nobody uses it, until the user gives it away", async () => {
  const { clock, host, deps } = machine();
  const record = () => JSON.parse(host.files.text("/var/lib/kubelet/graftlet/node.json")) as { object?: unknown };
  await using first = await claimTarget({ ...deps(), claimant: claimantOf(clock) }, node, never);
  const other = claimantOf(clock, { namespace: "b" });
  const refused = {
    reason: "RootDirTaken",
    message:
      'the root directory "/var/lib/kubelet" on the target belongs to GraftedNode a/n1: delete one of the two, or use another directory (rootDir); if the other is gone for good, take the directory over: kubectl -n b annotate gn n1 --overwrite graftlet.dev/take-over=a-1',
  };
  const files = () => [host.files.text("/var/lib/kubelet/graftlet/node.json"), ...host.files.tree("/")].join("\n");
  const before = files();
  await assert.rejects(claimTarget({ ...deps(), claimant: other }, node, never), refused);
  await first[Symbol.asyncDispose]();
  await clock.advance(600_000);
  await assert.rejects(claimTarget({ ...deps(), claimant: other }, node, never), refused);
  assert.equal(files(), before);
  {
    await using _again = await claimTarget({ ...deps(), claimant: claimantOf(clock) }, node, never);
  }
  const given = claimantOf(clock, { namespace: "b", takesOver: "a-1" });
  {
    await using _given = await claimTarget({ ...deps(), claimant: given }, node, never);
    assert.deepEqual(record().object, { namespace: "b", name: "n1", uid: "b-1" });
  }
  await assert.rejects(claimTarget({ ...deps(), claimant: claimantOf(clock) }, node, never), {
    message: /belongs to GraftedNode b\/n1: /,
  });
});

test("refuses a root directory of an object or a node with another name; one of the configuration may become an object, and the reverse", async () => {
  const { clock, host, deps } = machine();
  const record = () => JSON.parse(host.files.text("/var/lib/kubelet/graftlet/node.json")) as { object?: unknown };
  await (await claimTarget(deps(), node, never))[Symbol.asyncDispose]();
  const other = { ...node, nodeName: "n2" };
  const otherObject = claimantOf(clock, { name: "n2" });
  await assert.rejects(claimTarget({ ...deps(), claimant: otherObject }, other, never), {
    reason: "RootDirTaken",
    message: /belongs to node n1: .*: kubectl -n a annotate gn n2 --overwrite graftlet\.dev\/take-over=n1$/,
  });
  await (await claimTarget({ ...deps(), claimant: claimantOf(clock) }, node, never))[Symbol.asyncDispose]();
  await assert.rejects(claimTarget(deps(), other, never), {
    reason: "RootDirTaken",
    message:
      'the root directory "/var/lib/kubelet" on the target belongs to GraftedNode a/n1: delete one of the two, or use another directory (rootDir)',
  });
  await (await claimTarget(deps(), node, never))[Symbol.asyncDispose]();
  assert.equal(record().object, undefined);
});

test("an object that was created again, or is another cluster's, gets the root directory once nobody has locked it for a minute", async () => {
  const { clock, deps } = machine();
  const again = claimantOf(clock, { uid: "2" });
  const tryIt = () => claimTarget({ ...deps(), claimant: again }, node, never);
  const refused = {
    reason: "RootDirTaken",
    message: /belongs to another GraftedNode a\/n1 \(UID a-1\), which is of another cluster, or was this object /,
  };
  {
    await using _first = await claimTarget({ ...deps(), claimant: claimantOf(clock) }, node, never);
    for (let turn = 0; turn < 10; turn += 1) {
      await assert.rejects(tryIt(), refused);
      await clock.advance(10_000);
    }
  }
  await assert.rejects(tryIt(), refused);
  await clock.advance(40_000);
  await assert.rejects(tryIt(), refused);
  {
    await using _handedOver = await claimTarget({ ...deps(), claimant: claimantOf(clock) }, node, never);
    await clock.advance(30_000);
    await assert.rejects(tryIt(), refused);
  }
  await assert.rejects(tryIt(), refused);
  await clock.advance(60_000);
  await using _again = await tryIt();
  await assert.rejects(claimTarget({ ...deps(), claimant: claimantOf(clock) }, node, never), {
    reason: "RootDirTaken",
  });
});
