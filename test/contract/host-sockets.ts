import assert from "node:assert/strict";
import type { Duplex } from "node:stream";
import { test } from "node:test";
import { codeOf } from "../../src/lib/errors.ts";
import type { Address, HostListener } from "../../src/seams/host.ts";
import type { Bench } from "./host.ts";
import { allOf, within } from "./waiting.ts";

/** Connections from the target, and to it. */
export function socketContract({ current, folder }: Bench): void {
  const listen = async (
    at: Address,
    onConnection: (connection: Duplex) => void,
    signal?: AbortSignal,
  ): Promise<HostListener> => {
    const listener = await current().host.listen?.(at, onConnection, signal);
    assert.ok(listener, "this contract needs a host that listens");
    return listener;
  };
  const loopback = { host: "127.0.0.1", port: 0 };

  test("dial reaches a TCP port, and supports half-close from either side", async () => {
    await using listener = await listen(loopback, (connection) => {
      void allOf(connection).then((asked) => connection.end(`you said ${asked}`));
    });
    const connection = await current().host.dial(listener.address);
    const answer = allOf(connection);
    connection.end("hello");
    assert.equal(await within(answer), "you said hello");

    const asked = Promise.withResolvers<string>();
    await using greeter = await listen(loopback, (far) => {
      far.end("welcome");
      void allOf(far).then(asked.resolve);
    });
    const near = await current().host.dial(greeter.address);
    assert.equal(await within(allOf(near)), "welcome");
    near.end("thanks");
    assert.equal(await within(asked.promise), "thanks");
  });

  test("dial reaches a unix socket", async () => {
    const path = `${await folder()}/s`;
    await using _listener = await listen({ unix: path }, (connection) => connection.end("unix"));
    assert.equal(await within(allOf(await current().host.dial({ unix: path }))), "unix");
  });

  test("dial reaches a unix socket whose path exceeds the limit of a socket address", async () => {
    const { host } = current();
    const [short, long] = [`${await folder()}/s`, `${await folder()}/${"long-".repeat(20)}`];
    await using _listener = await listen({ unix: short }, (connection) => connection.end("far"));
    await host.fs.apply([
      { kind: "mkdir", path: long },
      { kind: "symlink", path: `${long}/s`, target: short },
    ]);
    assert.equal(await within(allOf(await host.dial({ unix: `${long}/s` }))), "far");
    await assert.rejects(host.dial({ unix: `${long}/none` }), { code: "unavailable" });
    await assert.rejects(host.dial({ unix: `${long}/none/s` }), { code: "unavailable" });
  });

  test("dial fails with unavailable if nothing listens, and with cancelled if aborted", async () => {
    const { host } = current();
    const listener = await listen(loopback, () => undefined);
    await listener[Symbol.asyncDispose]();
    await assert.rejects(host.dial(listener.address), (error) => {
      assert.equal(codeOf(error), "unavailable");
      // Who probes tells users the system's error.
      return systemCode(error) === "ECONNREFUSED";
    });
    await assert.rejects(host.dial({ unix: `${await folder()}/none` }), { code: "unavailable" });
    await assert.rejects(host.dial(listener.address, AbortSignal.abort()), { code: "cancelled" });
  });

  test("listens on an address once; disposal and the signal free the address and close its connections", async () => {
    const stop = new AbortController();
    const first = await listen(loopback, (connection) => connection.on("error", () => undefined));
    await assert.rejects(
      listen(first.address, () => undefined),
      { code: "already_exists" },
    );
    const connection = await current().host.dial(first.address);
    connection.on("error", () => undefined).resume();
    const closed = new Promise((resolve) => connection.once("close", resolve));
    await within(Promise.resolve(first[Symbol.asyncDispose]()));
    connection.end();
    await within(closed);
    const second = await listen(first.address, () => undefined, stop.signal);
    stop.abort();
    await within(Promise.resolve(second[Symbol.asyncDispose]()));
    await assert.rejects(current().host.dial(first.address), { code: "unavailable" });
  });
}

/** The system's own word among an error's causes. */
function systemCode(error: unknown): string | undefined {
  for (let at = error; at instanceof Error; at = at.cause)
    if ("code" in at && /^E[A-Z]+$/.test(String(at.code))) return String(at.code);
  return undefined;
}
