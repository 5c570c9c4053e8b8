import assert from "node:assert/strict";
import { test } from "node:test";
import { claimTarget } from "../../../src/process/claim.ts";
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
