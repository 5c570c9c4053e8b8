import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import type { Connection } from "../../../../../providers/ssh/connection/connection.ts";
import type { Link } from "../../../../../providers/ssh/connection/link.ts";
import { createSessions } from "../../../../../providers/ssh/connection/sessions.ts";
import { CodedError } from "../../../../../src/lib/errors.ts";
import { silentLog } from "../../../../../src/lib/log.ts";
import { fakeClock } from "../../../../fakes/clock.ts";

const log = silentLog();

interface FakeOptions {
  /** Milliseconds until the target detects the end of a session. */
  readonly slow?: number;
  /** The target rejects additional connections until this is true. */
  readonly welcomes?: () => boolean;
  /** Sessions that the target's sshd allows per connection. */
  readonly allowed?: number;
  readonly connections?: number;
}

/** A link to a target with a limit of connections. */
function target({ allowed = 10, connections: most = 3, slow = 0, welcomes = () => true }: FakeOptions = {}) {
  const clock = fakeClock();
  const connections: Connection[] = [];
  const channels: EventEmitter[] = [];
  const connect = (): Connection => {
    let open = 0;
    const client = {
      exec(_command: string, done: (error: Error | undefined, channel?: unknown) => void) {
        if (open >= allowed) return done(Object.assign(new Error("open failed"), { reason: 2 }));
        open += 1;
        const channel = new EventEmitter().once("close", () => void clock.after(slow, () => (open -= 1)));
        channels.push(channel);
        done(undefined, channel);
      },
    };
    const { signal: lost } = new AbortController();
    const connection = { client, lost, sessions: 0, userSessions: 0, sessionLimit: 8 } as unknown as Connection;
    connections.push(connection);
    return connection;
  };
  const link = {
    onChange: () => () => undefined,
    countExchange: () => undefined,
    connections: () => connections,
    connection: async () => connections[0] ?? connect(),
    async openAnother() {
      if (connections.length >= most) throw new CodedError("failed_precondition", "as many as there may be");
      if (!welcomes()) throw new CodedError("unavailable", "turned away");
      return connect();
    },
  } as unknown as Link;
  const sessions = createSessions({ link, clock, log });
  const open = (options: { urgent?: boolean; forUser?: boolean; signal?: AbortSignal } = {}) =>
    sessions.open({ start: { exec: "exec /bin/sh" }, ...options });
  const used = () => connections.map((connection) => connection.sessions);
  return { clock, open, used, channels };
}

const times = <T>(count: number, make: () => T): T[] => Array.from({ length: count }, make);

test("opens seven sessions per connection, an eighth for urgent requests, and further ones on another connection", async () => {
  const { open, used } = target();
  await Promise.all(times(7, () => open()));
  assert.deepEqual(used(), [7]);
  await open({ urgent: true });
  assert.deepEqual(used(), [8]);
  await open();
  assert.deepEqual(used(), [8, 1]);
});

test("requests beyond the limit wait in order for a session to end, or until their signal aborts", async () => {
  const { open, used, channels, clock } = target({ connections: 2 });
  await Promise.all(times(14, () => open()));
  assert.deepEqual(used(), [7, 7]);
  const stop = new AbortController();
  const gone = assert.rejects(open({ signal: stop.signal }), { code: "cancelled" });
  let done = false;
  const next = open().then(() => (done = true));
  await clock.advance(0);
  assert.equal(done, false);
  stop.abort();
  await gone;
  channels[3]?.emit("close");
  await next;
  assert.deepEqual(used(), [7, 7]);
});

for (const [allowed, most] of [
  [10, 3],
  [2, 12],
  [1, 12],
] as const)
  test(`with MaxSessions ${allowed}, users hold at most half of the slots, and the node's own sessions never wait`, async () => {
    const { open, used, channels, clock } = target({ allowed, connections: most });
    const stop = new AbortController();
    const asked = times(40, () => open({ forUser: true, signal: stop.signal }));
    for (const each of asked) each.catch(() => undefined);
    await clock.advance(1_000);
    const taken = channels.length;
    const places = Math.min(8, allowed) * most;
    assert.ok(taken > 0 && taken <= places / 2, `${taken} of ${places}`);
    await open();
    assert.equal(used().length, most);
    // A user's slot goes to the next user.
    channels[0]?.emit("close");
    await clock.advance(1_000);
    assert.equal(channels.length, taken + 2);
    stop.abort();
  });

test("lowers its limit if the target allows fewer sessions", async () => {
  const { open, used } = target({ allowed: 2 });
  for (let count = 0; count < 4; count++) await open();
  assert.deepEqual(
    used().reduce((sum, each) => sum + each, 0),
    4,
  );
  assert.ok(
    used().every((each) => each <= 2),
    String(used()),
  );
});

test("reports NoSessions with the remedy if the target allows no sessions", async () => {
  const { open } = target({ allowed: 0 });
  await assert.rejects(open(), { code: "unavailable", reason: "NoSessions", message: /MaxSessions/ });
});

test("does not lower its limit if the target still counts a session that has just ended", async () => {
  const { open, used, channels, clock } = target({ allowed: 7, slow: 100 });
  await Promise.all(times(7, () => open()));
  channels[0]?.emit("close");
  const next = open();
  await clock.advance(300);
  await next;
  assert.deepEqual(used(), [7]);
});

test("retries a rejected additional connection, and serves the waiting requests", async () => {
  let welcome = false;
  const { open, used, clock } = target({ welcomes: () => welcome });
  await Promise.all(times(7, () => open()));
  let done = false;
  const next = open().then(() => (done = true));
  await clock.advance(4_000);
  assert.equal(done, false);
  welcome = true;
  await clock.advance(10_000);
  await next;
  assert.deepEqual(used(), [7, 1]);
});
