import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { localHost } from "../../providers/local/host.ts";
import { fencingToken, type GraftedNode } from "../../src/fleet/grafted-node.ts";
import { createMembership } from "../../src/fleet/membership.ts";
import { createOwnership } from "../../src/fleet/ownership.ts";
import { acquireLocks, LockHeldError, SupersededError } from "../../src/host/lock.ts";
import { readOwnershipRecord } from "../../src/host/ownership-record.ts";
import { otherOwner } from "../../src/host/root-owner.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import { runGroup } from "../../src/lib/runnables.ts";
import type { Lease } from "../../src/objects.ts";
import { fakeClock } from "../fakes/clock.ts";
import { never } from "../fakes/signals.ts";
import { argvOf } from "../harness/argv.ts";
import { start } from "../harness/processes.ts";
import { waitFor } from "../harness/wait.ts";
import { fakeClient, watchFeed } from "../unit/api/fake-client.ts";

// Replicas of different versions share machines during a roll-out or a roll-back. What they tell each other is written by commits that are
// named by the files of replica-formats: lock-COMMIT.json is the command that holds a machine's lock, writes-COMMIT.json has the requests
// to the API server. A change that these tests notice needs a version that understands both, before one that writes the new one.

const folder = join(import.meta.dirname, "replica-formats");
const read = (file: string): unknown => JSON.parse(readFileSync(join(folder, file), "utf8"));
const clock = systemClock();
const object = "9c1de2b7-77aa-4f2e-8a43-5b6c7d8e9f00";

/** A machine's directory with a lock, which replicas of both versions want. */
function machine(t: TestContext, commit: string) {
  const directory = mkdtempSync(join(tmpdir(), "graftlet-replica-formats-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const lock = join(directory, "lock");
  writeFileSync(lock, "");
  const { lock: _ofProcess, ...host } = localHost({ clock });
  const command = read(`lock-${commit}.json`) as readonly string[];
  return {
    directory,
    host,
    lock,
    /** Today's. */
    acquire: (epoch: number) =>
      acquireLocks(
        host,
        [{ path: lock }],
        never,
        { clock, timeoutSeconds: 60, intervalMs: 1_000 },
        { directory, token: { object, epoch } },
      ),
    /** That of the other version: its first output, or how it ended. */
    async acquireOther(epoch: number) {
      const values: Readonly<Record<string, string>> = {
        LOCK: lock,
        FENCE: directory,
        OBJECT: object,
        EPOCH: String(epoch),
      };
      const process = start(
        command.map((word) => values[word] ?? word),
        { stdio: "pipe" },
      );
      t.after(() => process.kill("SIGKILL"));
      const { stdin, stdout } = process;
      assert.ok(stdin && stdout);
      stdin.on("error", () => undefined);
      const exited = new Promise<number | null>((resolve) => process.once("exit", resolve));
      const said = new Promise<string>((resolve) => stdout.once("data", (text: Buffer) => resolve(text.toString())));
      return { first: await Promise.race([said, exited]), exited, release: () => stdin.end() };
    },
    token: () => readFileSync(join(directory, "token"), "utf8"),
  };
}

describe("locks of a machine that replicas of two versions share", { concurrency: true }, () => {
  for (const commit of ["0ab6d7b5", "49f63974"]) {
    test(`a replica gets the lock of one of ${commit} within seconds in a later epoch, and refuses it in an earlier one`, async (t) => {
      const { acquire, acquireOther, lock, token } = machine(t, commit);
      const other = await acquireOther(4);
      assert.equal(other.first, "held\n");
      assert.equal(token(), `${object} 4\n`);
      await assert.rejects(acquire(3), (error) => error instanceof LockHeldError && error.path === lock);
      await assert.rejects(acquire(5), LockHeldError);
      assert.equal(await other.exited, 91);
      const today = await acquire(5);
      assert.equal(token(), `${object} 5\n`);
      assert.equal((await acquireOther(4)).first, 101);
      await clock.sleep(6_000);
      assert.equal(today.hasEnded(), false);
      await today[Symbol.asyncDispose]();
      assert.equal((await acquireOther(4)).first, 91);
    });

    test(`a replica of ${commit} gets the lock of today's within seconds in a later epoch`, async (t) => {
      const { acquire, acquireOther, token } = machine(t, commit);
      await using today = await acquire(4);
      assert.equal((await acquireOther(5)).first, 101);
      await waitFor("today's to let go", () => today.hasEnded(), { timeoutMs: 12_000 });
      await assert.rejects(acquire(4), SupersededError);
      const other = await acquireOther(5);
      assert.equal(other.first, "held\n");
      assert.equal(token(), `${object} 5\n`);
      await assert.rejects(acquire(4), LockHeldError);
      other.release();
      await other.exited;
      await assert.rejects(acquire(4), SupersededError);
    });
  }
});

test("the record of a root directory that an earlier version has written is understood, and the object's owner may be missing in it", async (t) => {
  const { directory, host } = machine(t, "0ab6d7b5");
  const made = ["/var/lib/kubelet", "/var/lib/kubelet/edge-1"];
  const record = JSON.stringify({ version: 1, node: "edge-1", made, network: { is: "tunneled" } });
  await host.run(argvOf(["mkdir", `${directory}/graftlet`]));
  writeFileSync(join(directory, "graftlet", "node.json"), `${record}\n`);
  const known = await readOwnershipRecord(host.fs, directory, never);
  assert.deepEqual(known, { node: "edge-1", made, network: { is: "tunneled" } });
  const claimant = {
    object: { namespace: "graftlet", name: "edge-1", uid: object },
    takesOver: () => undefined,
    idle: { observe: () => 0 },
  };
  assert.equal(otherOwner(known, { nodeName: "edge-1", claimant }), undefined);
});

interface Write {
  readonly path: string;
  readonly query: object;
  readonly body: object;
}

const self = { name: "edge-graftlet-6d4f9-x2v4q", uid: "0b8f6a0e-4f57-4f0e-9d6e-0a1b2c3d4e5f" };

/** Lets a replica join, announce that it is leaving, and take an object. @returns what it writes. */
async function writesOfToday(): Promise<readonly Write[]> {
  const time = fakeClock();
  const written: Write[] = [];
  const client = fakeClient(({ verb, path, query, body }, signal) => {
    if (verb === "list") return { metadata: { resourceVersion: "1" }, items: [] };
    if (verb === "watch") return watchFeed(signal);
    if (verb === "patch") written.push({ path, query, body: body as object });
    return {};
  });
  const common = { client, clock: time, log: silentLog(), self };
  const stop = new AbortController();
  const membership = createMembership({ ...common, namespace: "graftlet", release: "edge", onChange: () => {} });
  void runGroup(membership.running, stop.signal);
  await time.advance(100);
  await membership.leave(stop.signal);
  const unowned = {
    metadata: { name: "edge-1", namespace: "graftlet", uid: object, resourceVersion: "41" },
    status: { owner: { replica: "", uid: "", epoch: 3, since: "2026-11-29T16:00:00Z" } },
  };
  const isTaken = () => written.some(({ path }) => path.endsWith("/status"));
  const ownership = createOwnership({
    ...common,
    membership: { isAlive: () => false, isOutside: () => false, accepting: () => [self.uid], mayTake: () => true },
    objects: () => (isTaken() ? [] : [unowned]),
    path: (namespace, name) => `/apis/graftlet.dev/v1alpha1/namespaces/${namespace}/graftednodes/${name}`,
    stop: async () => {},
    resume: () => {},
    isServed: () => true,
  });
  void ownership.run(stop.signal);
  await time.advance(100);
  stop.abort();
  return written;
}

describe("what replicas write in the cluster", () => {
  const earlier = read("writes-0ab6d7b5.json") as readonly Write[];

  test("Lease and status.owner are as an earlier version writes them", async () => {
    assert.deepEqual(await writesOfToday(), earlier);
  });

  test("a replica knows one of an earlier version by its Lease, and when that is leaving", async () => {
    const time = fakeClock();
    const [joined, leaving] = earlier.map(({ body }) => body as Lease);
    const feeds: ReturnType<typeof watchFeed>[] = [];
    const client = fakeClient(({ verb }, signal) => {
      if (verb === "list") return { metadata: { resourceVersion: "1" }, items: [joined] };
      if (verb !== "watch") return {};
      const feed = watchFeed(signal);
      feeds.push(feed);
      return feed;
    });
    const stop = new AbortController();
    const membership = createMembership({
      client,
      clock: time,
      log: silentLog(),
      namespace: "graftlet",
      release: "edge",
      self: { name: "other", uid: "other" },
      onChange: () => {},
    });
    void runGroup(membership.running, stop.signal);
    await time.advance(100);
    assert.deepEqual(membership.replicas(), [{ ...self, isLeaving: false }]);
    assert.deepEqual([membership.isAlive(self.uid), membership.accepting()], [true, [self.uid]]);
    for (const feed of feeds) feed.send("MODIFIED", leaving);
    await time.advance(100);
    assert.deepEqual([membership.isAlive(self.uid), membership.accepting()], [true, []]);
    stop.abort();
  });

  test("the token of an object that an earlier version has taken has its epoch", () => {
    const { status } = (earlier.at(-1)?.body ?? {}) as Pick<GraftedNode, "status">;
    const metadata = { name: "edge-1", namespace: "graftlet", uid: object };
    assert.deepEqual(fencingToken({ metadata, spec: { ssh: {} }, ...(status && { status }) }), { object, epoch: 4 });
  });
});
