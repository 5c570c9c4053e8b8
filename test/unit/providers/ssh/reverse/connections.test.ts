import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { type ReverseConnection, createReverseConnections } from "../../../../../providers/ssh/reverse/connections.ts";
import { abortError } from "../../../../../src/lib/errors.ts";
import { fakeClock } from "../../../../fakes/clock.ts";
import { never } from "../../../../fakes/signals.ts";

test("an aborted open fails at once, even without any reverse connection", async () => {
  const connections = createReverseConnections("edge", fakeClock());
  const over = new AbortController();
  const waiting = connections.open(over.signal);
  over.abort();
  await assert.rejects(waiting, { message: abortError(over.signal).message });
  await assert.rejects(connections.open(over.signal), { message: abortError(over.signal).message });
});

/** A reverse connection that opens its own stream. */
function dialled(): {
  readonly connection: ReverseConnection;
  readonly stream: Duplex;
  readonly closed: () => boolean;
} {
  const stream = new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() });
  let isClosed = false;
  const connection = { forward: async () => stream, close: () => void (isClosed = true) };
  return { connection, stream, closed: () => isClosed };
}

test("tries a connection that led to a wrong host key after the others", async () => {
  const connections = createReverseConnections("edge", fakeClock());
  const [machine, thief] = [dialled(), dialled()];
  connections.add(machine.connection);
  connections.add(thief.connection);
  assert.equal(await connections.open(never), thief.stream);
  assert.equal(connections.reportHostKey(thief.stream, false), true, "there is another one");
  assert.equal(await connections.open(never), machine.stream);
  connections.reportHostKey(machine.stream, true);
  connections.remove(machine.connection);
  assert.equal(await connections.open(never), thief.stream);
  assert.equal(connections.reportHostKey(thief.stream, false), false, "there is no other");
});

test("reports the newest connection that is not suspect as the arrival", async () => {
  const clock = fakeClock();
  const connections = createReverseConnections("edge", clock);
  let changes = 0;
  connections.onChange(() => (changes += 1));
  assert.equal(connections.arrival(), undefined);
  const [machine, thief] = [dialled(), dialled()];
  const first = clock.monotonic();
  connections.add(machine.connection);
  assert.deepEqual(connections.arrival(), { at: first, isDoubtful: false });
  await clock.advance(1_000);
  connections.add(thief.connection);
  assert.deepEqual(connections.arrival(), { at: first + 1_000, isDoubtful: false });
  connections.reportHostKey(await connections.open(never), false);
  assert.deepEqual(connections.arrival(), { at: first, isDoubtful: true });
  connections.reportHostKey(await connections.open(never), true);
  assert.deepEqual(connections.arrival(), { at: first, isDoubtful: false });
  connections.remove(machine.connection);
  assert.equal(connections.arrival(), undefined);
  assert.equal(changes, 5);
});

test("does not evict a connection known to lead to the machine in favour of connections with a stolen key", async () => {
  const connections = createReverseConnections("edge", fakeClock());
  const machine = dialled();
  connections.add(machine.connection);
  connections.reportHostKey(await connections.open(never), true);
  const thieves = Array.from({ length: 10 }, dialled);
  for (const { connection } of thieves) connections.add(connection);
  assert.equal(machine.closed(), false);
  assert.equal(thieves.filter(({ closed }) => !closed()).length, 3);
});
