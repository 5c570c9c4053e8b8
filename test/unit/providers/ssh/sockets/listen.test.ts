import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Connection } from "../../../../../providers/ssh/connection/connection.ts";
import type { LinkState } from "../../../../../providers/ssh/connection/link-state.ts";
import { createListeners } from "../../../../../providers/ssh/sockets/listen.ts";
import { CodedError } from "../../../../../src/lib/errors.ts";
import { silentLog } from "../../../../../src/lib/log.ts";
import { fakeClock } from "../../../../fakes/clock.ts";

/** Runs a listener whose connection is lost. @param after state of the link after the loss. */
async function lostListener(after: "connecting" | "closed") {
  const clock = fakeClock();
  const loss = new AbortController();
  const forwardIn = (_host: string, port: number, done: (error: undefined, port: number) => void) =>
    done(undefined, port);
  const client = Object.assign(new EventEmitter(), { forwardIn });
  let asked = 0;
  const state = (): LinkState => {
    if (!loss.signal.aborted) return { kind: "up", since: 0, connections: 1 };
    return after === "closed" ? { kind: "closed" } : { kind: "connecting", since: 0 };
  };
  const unused = () => assert.fail("not needed for a port");
  const listen = createListeners({
    link: {
      state,
      countExchange: () => undefined,
      async connection() {
        asked += 1;
        if (loss.signal.aborted) throw new CodedError("unavailable", "there is no link");
        return { client, lost: loss.signal } as unknown as Connection;
      },
    },
    fs: { apply: unused, lstat: unused },
    privileges: unused,
    clock,
    log: silentLog(),
  } as unknown as Parameters<typeof createListeners>[0]);
  await listen({ host: "127.0.0.1", port: 7000 }, () => undefined);
  loss.abort();
  for (let second = 0; second < 10; second += 1) await clock.advance(1_000);
  return asked;
}

test("retries to bind a listener after its connection is lost", async () => {
  assert.ok((await lostListener("connecting")) >= 10);
});

test("does not retry after the link has been closed", async () => {
  assert.equal(await lostListener("closed"), 2);
});

test("does not keep lost connections", async () => {
  const clock = fakeClock();
  const forwardIn = (_host: string, port: number, done: (error: undefined, port: number) => void) =>
    done(undefined, port);
  const connections: WeakRef<object>[] = [];
  let lose = () => {};
  const listen = createListeners({
    link: {
      state: (): LinkState => ({ kind: "up", since: 0, connections: 1 }),
      countExchange: () => undefined,
      async connection() {
        const loss = new AbortController();
        lose = () => loss.abort();
        const connection = { client: Object.assign(new EventEmitter(), { forwardIn }), lost: loss.signal };
        connections.push(new WeakRef(connection.lost));
        return connection as unknown as Connection;
      },
    },
    clock,
    log: silentLog(),
  } as unknown as Parameters<typeof createListeners>[0]);
  await using _listener = await listen({ host: "127.0.0.1", port: 7000 }, () => undefined);
  for (let times = 1; times <= 10; times += 1) {
    lose();
    await turn();
    assert.equal(connections.length, times + 1);
  }
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  await turn();
  collect();
  assert.ok(connections.filter((one) => one.deref() !== undefined).length <= 2);
});
