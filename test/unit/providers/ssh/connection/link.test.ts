import assert from "node:assert/strict";
import { test } from "node:test";
import { readSshConfig } from "../../../../../providers/ssh/config.ts";
import type { Connection } from "../../../../../providers/ssh/connection/connection.ts";
import { LinkError, retryDelay } from "../../../../../providers/ssh/connection/link-state.ts";
import {
  type Link,
  type LinkOptions,
  connectionLimit,
  createLink,
} from "../../../../../providers/ssh/connection/link.ts";
import { silentLog } from "../../../../../src/lib/log.ts";
import { fakeClock } from "../../../../fakes/clock.ts";

const config = readSshConfig({ host: "h", user: "u", agentSocket: "/a", knownHostsFile: "/k" });
const log = silentLog();
const down = (reason: LinkError["reason"] = "LinkDown") => new LinkError(reason, "unavailable", "it is away.");

/** A target whose connections are opened and broken by the test. */
function target(check?: LinkOptions["check"], checkFurther?: LinkOptions["checkFurther"]) {
  const clock = fakeClock();
  const attempts: PromiseWithResolvers<Connection>[] = [];
  const link = createLink({
    config,
    clock,
    log,
    ...(check && { check }),
    ...(checkFurther && { checkFurther }),
    open: () => {
      const attempt = Promise.withResolvers<Connection>();
      attempts.push(attempt);
      return attempt.promise;
    },
  });
  const connect = () => {
    const lost = new AbortController();
    const connection = {
      lost: lost.signal,
      sessions: 0,
      userSessions: 0,
      sessionLimit: 8,
      close: () => lost.abort(down()),
    } as unknown as Connection;
    attempts.at(-1)?.resolve(connection);
    return { connection, lose: (why = down()) => lost.abort(why) };
  };
  return { clock, link, attempts, connect, refuse: (why: LinkError) => attempts.at(-1)?.reject(why) };
}

const unavailable = (link: Link) => assert.rejects(link.connection(), { code: "unavailable", message: /it is away/ });

test("the link connects on first use; all callers share one attempt", async () => {
  const { link, attempts, connect, clock } = target();
  await clock.advance(60_000);
  assert.equal(attempts.length, 0);
  assert.equal(link.state().kind, "down");
  const waiting = [link.connection(), link.connection(), link.connection()];
  assert.equal(link.state().kind, "connecting");
  await clock.advance(0);
  const { connection } = connect();
  assert.deepEqual(await Promise.all(waiting), [connection, connection, connection]);
  assert.equal(attempts.length, 1);
  assert.deepEqual(link.state(), { kind: "up", since: clock.now(), connections: 1 });
  assert.equal(link.roundTrips(), 1);
  await link[Symbol.asyncDispose]();
});

test("calls fail at once while the link is down; it retries with growing delays and reports since when and why it is down", async () => {
  const { link, attempts, connect, refuse, clock } = target();
  const first = assert.rejects(link.connection(), { code: "unavailable" });
  await clock.advance(0);
  refuse(down());
  await first;
  const since = clock.now();
  const delays: number[] = [];
  for (let round = 0; round < 9; round++) {
    const state = link.state();
    assert.ok(state.kind === "down");
    delays.push(state.nextTryAt - clock.now());
    assert.equal(state.since, since);
    await unavailable(link);
    await clock.advance(state.nextTryAt - clock.now());
    assert.equal(link.state().kind, "connecting");
    refuse(down());
    await clock.advance(0);
  }
  assert.deepEqual(delays, [400, 800, 1600, 3200, 6400, 12_800, 24_000, 24_000, 24_000]);
  await clock.advance(24_000);
  connect();
  await clock.advance(0);
  assert.equal(link.state().kind, "up");
  assert.equal(attempts.length, 11);
  await link[Symbol.asyncDispose]();
});

test("calls fail with unavailable, not permission_denied, when the login is refused; the state has the reason", async () => {
  const { link, refuse, clock } = target();
  const why = new LinkError("LoginRefused", "permission_denied", "no such user");
  const call = assert.rejects(link.connection(), { code: "unavailable", message: /no such user/, cause: why });
  await clock.advance(0);
  refuse(why);
  await call;
  const state = link.state();
  assert.ok(state.kind === "down");
  assert.equal(state.why, why);
  assert.ok(state.nextTryAt - clock.now() >= 20_000);
  await link[Symbol.asyncDispose]();
});

test("stays up until its last connection is lost, and then reconnects", async () => {
  const { link, attempts, connect, clock } = target();
  const states: string[] = [];
  link.onChange((state) => states.push(state.kind === "up" ? `up ${state.connections}` : state.kind));
  const asked = link.connection();
  await clock.advance(0);
  const one = connect();
  await asked;
  const more = [link.openAnother(), link.openAnother()];
  await clock.advance(0);
  assert.equal(attempts.length, 2);
  const two = connect();
  assert.deepEqual(await Promise.all(more), [two.connection, two.connection]);
  one.lose();
  assert.equal(await link.connection(), two.connection);
  await clock.advance(60_000);
  two.lose();
  await unavailable(link);
  await clock.advance(400);
  const three = connect();
  await clock.advance(0);
  assert.equal(await link.connection(), three.connection);
  assert.deepEqual(states, ["connecting", "up 1", "up 2", "up 1", "down", "connecting", "up 1"]);
  await link[Symbol.asyncDispose]();
});

test("a keepalive timeout on one connection takes the whole link down, with that reason", async () => {
  const { link, connect, clock } = target();
  const asked = link.connection();
  await clock.advance(0);
  const one = connect();
  await asked;
  const more = link.openAnother();
  await clock.advance(0);
  const two = connect();
  await more;
  const cause = Object.assign(new Error("Keepalive timeout"), { level: "client-timeout" });
  const why = new LinkError("LinkDown", "unavailable", "it is silent.", { cause });
  let known: string | undefined;
  one.connection.lost.addEventListener("abort", () => (known = link.state().kind));
  one.lose(why);
  assert.equal(known, "down", "what fails with the connection finds the link down");
  const state = link.state();
  assert.ok(state.kind === "down" && state.why === why);
  assert.ok(two.connection.lost.aborted);
  await link[Symbol.asyncDispose]();
});

test("opens at most three connections, and stays up if another one cannot be opened", async () => {
  const { link, connect, refuse, clock } = target();
  const asked = link.connection();
  await clock.advance(0);
  connect();
  await asked;
  const failing = assert.rejects(link.openAnother(), { code: "unavailable" });
  await clock.advance(0);
  refuse(down());
  await failing;
  assert.equal(link.state().kind, "up");
  for (let count = 2; count <= 3; count++) {
    const more = link.openAnother();
    await clock.advance(0);
    connect();
    await more;
  }
  await assert.rejects(link.openAnother(), { code: "failed_precondition" });
  await link[Symbol.asyncDispose]();
});

test("a further connection is used once it has passed its check, and closed if it fails", async () => {
  const checked: Connection[] = [];
  const { link, connect, clock } = target(undefined, async (connection) => {
    if (checked.push(connection) === 1) throw new LinkError("NoSessions", "unavailable", "it allows none.");
  });
  const asked = link.connection();
  await clock.advance(0);
  const first = connect();
  await asked;
  const failing = assert.rejects(link.openAnother(), { code: "unavailable", message: /it allows none/ });
  await clock.advance(0);
  const refused = connect();
  await failing;
  assert.equal(refused.connection.lost.aborted, true);
  assert.deepEqual(link.connections(), [first.connection]);
  const more = link.openAnother();
  await clock.advance(0);
  const second = connect();
  assert.equal(await more, second.connection);
  assert.deepEqual(checked, [refused.connection, second.connection]);
  assert.equal(link.state().kind, "up");
  await link[Symbol.asyncDispose]();
});

test("the link is up once the target has passed the check: callers wait for the check, and its failure is the reason of the down state", async () => {
  const verdicts: PromiseWithResolvers<void>[] = [];
  const { link, connect, clock } = target(async () => {
    const verdict = Promise.withResolvers<void>();
    verdicts.push(verdict);
    await verdict.promise;
  });
  const refused = assert.rejects(link.connection(), { code: "unavailable", message: /it is away/ });
  await clock.advance(0);
  const first = connect();
  await clock.advance(0);
  assert.equal(link.state().kind, "connecting");
  verdicts[0]?.reject(down("LoginShellTimeout"));
  await refused;
  const state = link.state();
  assert.ok(state.kind === "down" && state.why.reason === "LoginShellTimeout");
  assert.ok(first.connection.lost.aborted, "a connection that is of no use is not kept");
  await clock.advance(state.nextTryAt - clock.now());
  const asked = link.connection();
  const second = connect();
  await clock.advance(0);
  verdicts[1]?.resolve();
  assert.equal(await asked, second.connection);
  await link[Symbol.asyncDispose]();
});

test("reports the loss of the connection if it is lost during the check", async () => {
  const { link, connect, clock } = target(
    (_connection, signal) =>
      new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(new Error("stopped")))),
  );
  const refused = assert.rejects(link.connection(), { message: /the cable is out/ });
  await clock.advance(0);
  const { lose } = connect();
  await clock.advance(0);
  lose(new LinkError("LinkDown", "unavailable", "the cable is out."));
  await refused;
  await link[Symbol.asyncDispose]();
});

test("resets its retry delays after two seconds of uptime, but not if it breaks earlier", async () => {
  const { link, connect, clock } = target();
  const delays: number[] = [];
  void link.connection();
  for (const stoodMs of [0, 0, 0, 2_000, 0]) {
    await clock.advance(0);
    const { lose } = connect();
    await clock.advance(stoodMs);
    lose();
    const state = link.state();
    assert.ok(state.kind === "down");
    delays.push(state.nextTryAt - clock.now());
    await clock.advance(state.nextTryAt - clock.now());
  }
  await clock.advance(0);
  connect();
  assert.deepEqual(delays, [400, 800, 1600, 400, 800]);
  await link[Symbol.asyncDispose]();
});

test("allows more connections if the target allows few sessions per connection", () => {
  const most = (...limits: number[]) => connectionLimit(limits.map((sessionLimit) => ({ sessionLimit })));
  assert.deepEqual([most(8), most(8, 8, 5), most(8, 3), most(2), most(1), most()], [3, 5, 8, 12, 12, 3]);
});

test("an aborted caller does not cancel the attempt", async () => {
  const { link, connect, clock } = target();
  const stop = new AbortController();
  const patient = link.connection();
  const impatient = assert.rejects(link.connection(stop.signal), { code: "cancelled" });
  await clock.advance(0);
  stop.abort();
  await impatient;
  const { connection } = connect();
  assert.equal(await patient, connection);
  await link[Symbol.asyncDispose]();
});

test("disposal cancels the retry timer and closes all connections, and later calls fail", async () => {
  const { link, connect, clock } = target();
  const asked = link.connection();
  await clock.advance(0);
  const { connection } = connect();
  await asked;
  await link[Symbol.asyncDispose]();
  assert.ok(connection.lost.aborted);
  assert.deepEqual(link.state(), { kind: "closed" });
  await assert.rejects(link.connection(), { code: "unavailable", message: /closed/ });
  const other = target();
  const failed = assert.rejects(other.link.connection(), { code: "unavailable" });
  await other.clock.advance(0);
  other.refuse(down());
  await failed;
  await other.link[Symbol.asyncDispose]();
  assert.equal(other.clock.pending, 0);
  assert.equal(clock.pending, 0);
});

test("retries problems that need human action slowly", () => {
  assert.deepEqual(
    [1, 2, 7, 50].map((failures) => retryDelay("LinkDown", failures)),
    [500, 1000, 30_000, 30_000],
  );
  assert.deepEqual(
    [1, 2, 3].map((failures) => retryDelay("HostKeyMismatch", failures)),
    [300_000, 600_000, 600_000],
  );
  assert.deepEqual(
    [1, 9].map((failures) => retryDelay("LoginRefused", failures)),
    [30_000, 300_000],
  );
});

test("fail() takes the link down with the given reason, closes its connections and reconnects", async () => {
  const { link, attempts, connect, clock } = target();
  const first = link.connection();
  await clock.advance(0);
  const { connection } = connect();
  await first;
  link.fail(down("LoginShellTimeout"));
  const state = link.state();
  assert.deepEqual([state.kind, connection.lost.aborted], ["down", true]);
  assert.equal(state.kind === "down" && state.why.reason, "LoginShellTimeout");
  await clock.advance(2_000);
  assert.equal(attempts.length, 2);
  connect();
  await clock.advance(0);
  assert.equal(link.state().kind, "up");
  await link[Symbol.asyncDispose]();
});
