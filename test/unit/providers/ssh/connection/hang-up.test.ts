import assert from "node:assert/strict";
import { test } from "node:test";
import type { Connection } from "../../../../../providers/ssh/connection/connection.ts";
import type { Link } from "../../../../../providers/ssh/connection/link.ts";
import { createSessions } from "../../../../../providers/ssh/connection/sessions.ts";
import { CodedError } from "../../../../../src/lib/errors.ts";
import { silentLog } from "../../../../../src/lib/log.ts";
import { fakeClock } from "../../../../fakes/clock.ts";

/** A connection whose peer has hung up: ssh2 fails each call, and may report the loss of the connection later. */
function hungUp() {
  const clock = fakeClock();
  const lost = new AbortController();
  const client = {
    exec() {
      throw new Error("Not connected");
    },
  };
  const connection = {
    client,
    lost: lost.signal,
    sessions: 0,
    userSessions: 0,
    sessionLimit: 8,
  } as unknown as Connection;
  const link = {
    onChange: () => () => undefined,
    connection: async () => connection,
    connections: () => [connection],
  } as unknown as Link;
  const sessions = createSessions({ link, clock, log: silentLog() });
  return { clock, lost, opening: sessions.open({ start: { exec: "exec /bin/sh" } }) };
}

test("reports a failed call as unavailable if the connection is being lost", async () => {
  const { clock, lost, opening } = hungUp();
  const failed = assert.rejects(opening, { code: "unavailable", message: "hung up" });
  await clock.advance(10);
  lost.abort(new CodedError("unavailable", "hung up"));
  await failed;
});

test("reports a failed call on a live connection as a refusal", async () => {
  const { clock, opening } = hungUp();
  const failed = assert.rejects(opening, { code: "failed_precondition", message: /denies this user commands/ });
  await clock.advance(250);
  await failed;
});
