import assert from "node:assert/strict";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { type TestContext, test } from "node:test";
import ssh2, { type Algorithms, type Client } from "ssh2";
import { type KeyOwner, startReverseServer } from "../../../../../providers/ssh/reverse/server.ts";
import { systemClock } from "../../../../../src/lib/clock.ts";
import { silentLog } from "../../../../../src/lib/log.ts";
import { sshAttacks } from "../../../../harness/hostile-ssh-attacks.ts";
import { sshKey } from "../../../../harness/ssh-keys.ts";

interface Inside {
  readonly _sock: { readonly bytesWritten: number };
  readonly _protocol: {
    rekey(): void;
    authNone(user: string): void;
    authPassword(): void;
    readonly _handlers: Record<string, (...args: never[]) => void>;
  };
}

const machine = sshKey("rsa").privateKey.export({ type: "pkcs1", format: "pem" });

/** A listener with one node, whose machine has the key `machine`. */
async function listener(t: TestContext, clock = systemClock()) {
  const key = ssh2.utils.parseKey(machine);
  assert.ok(!(key instanceof Error));
  let arrived = 0;
  const holder: KeyOwner = { name: "edge", key, onConnected: () => (arrived += 1), onDisconnected: () => undefined };
  const isMachines = (shown: Buffer) => shown.equals(key.getPublicSSH());
  const server = await startReverseServer({
    address: "127.0.0.1",
    port: 0,
    hostKey: Buffer.from(sshKey("rsa").privateKey.export({ type: "pkcs1", format: "pem" })),
    findKeyOwner: async (shown) => (isMachines(shown) ? holder : undefined),
    enrolment: () => undefined,
    clock,
    log: silentLog(),
  });
  const clients: Client[] = [];
  t.after(async () => {
    for (const client of clients) client.destroy();
    await server[Symbol.asyncDispose]();
  });
  const connect = (algorithms: Algorithms = {}, privateKey?: string | Buffer) => {
    const client = new ssh2.Client();
    clients.push(client);
    const closed = once(client, "close").catch(() => undefined);
    const errors: string[] = [];
    client.on("error", (error) => errors.push(error.message));
    client.connect({
      host: "127.0.0.1",
      port: server.port,
      username: "any",
      algorithms,
      ...(privateKey !== undefined && { privateKey }),
    });
    return { client, inside: client as unknown as Inside, closed, errors };
  };
  /** Connects a client that has exchanged keys and does not log in. */
  const visitor = async (algorithms?: Algorithms) => {
    const one = connect(algorithms);
    one.inside._protocol._handlers.SERVICE_ACCEPT = () => undefined;
    await once(one.client, "handshake");
    return one;
  };
  return { connect, visitor, arrived: () => arrived };
}

const within = async (closed: Promise<unknown>, ms: number): Promise<boolean> =>
  Promise.race([closed.then(() => true), sleep(ms, false)]);

for (const [what, algorithms] of [
  ["compression", { compress: ["zlib"] }],
  ["a key exchange of 8192 bits", { kex: ["diffie-hellman-group18-sha512"] }],
  ["SHA-1", { cipher: ["aes128-ctr"], hmac: ["hmac-sha1"] }],
] satisfies readonly [string, Algorithms][])
  test(`rejects a machine that offers only ${what}`, async (t) => {
    const { connect } = await listener(t);
    const { errors, closed } = connect(algorithms);
    await closed;
    assert.match(errors.join(), /no matching/i);
  });

test("closes a connection at once if it requests a second key exchange before the login", async (t) => {
  const { visitor } = await listener(t);
  const { inside, closed } = await visitor();
  inside._protocol.rekey();
  assert.ok(await within(closed, 3_000));
});

test("closes a connection at once if it sends more than 64 KiB before the login", async (t) => {
  const { visitor } = await listener(t);
  const { client, inside, closed } = await visitor();
  const ignored = sshAttacks["long ignored message"]?.begin;
  assert.ok(ignored);
  for (let n = 0; n < 3; n += 1) ignored(client as never, [], []);
  assert.ok(await within(closed, 3_000));
  assert.ok(inside._sock.bytesWritten > 64 * 1024);
});

test("answers the initial method none at once, and delays and limits further failures", async (t) => {
  const { connect } = await listener(t);
  const { inside, closed, client } = connect();
  let answers = 0;
  const ask = () => inside._protocol.authNone("any");
  inside._protocol._handlers.SERVICE_ACCEPT = ask;
  inside._protocol._handlers.USERAUTH_FAILURE = () => {
    answers += 1;
    ask();
  };
  await once(client, "handshake");
  await sleep(1_000);
  assert.ok(answers <= 4, `${answers} answers in a second`);
  assert.ok(await within(closed, 4_000));
});

test("answers the query for an RSA key with the requested algorithm", async (t) => {
  const { connect, arrived } = await listener(t);
  const { client, inside } = connect({}, machine);
  const { _handlers: handlers } = inside._protocol;
  const answer = Promise.withResolvers<string>();
  const { USERAUTH_PK_OK: next } = handlers;
  handlers.USERAUTH_PK_OK = (...args) => {
    answer.resolve(args[1] as unknown as string);
    next?.(...args);
  };
  await once(client, "ready");
  assert.match(await answer.promise, /^rsa-sha2-(256|512)$/);
  client.forwardIn("127.0.0.1", 22, () => undefined);
  while (arrived() === 0) await sleep(10);
});

test("closes a connection that exceeds the rate of key exchanges after the login", async (t) => {
  const { connect } = await listener(t);
  const { client, inside, closed } = connect({}, machine);
  await once(client, "ready");
  let exchanges = 0;
  client.on("handshake", () => {
    exchanges += 1;
    inside._protocol.rekey();
  });
  inside._protocol.rekey();
  assert.ok(await within(closed, 10_000));
  assert.ok(exchanges < 60, `${exchanges} key exchanges`);
});

test("a machine's fifth connection without a forward closes its first", async (t) => {
  const { connect } = await listener(t);
  const all = [];
  for (let n = 0; n < 5; n += 1) {
    const one = connect({}, machine);
    await once(one.client, "ready");
    all.push(one.closed);
  }
  assert.ok(await within(all[0] ?? Promise.resolve(), 2_000));
  assert.ok(!(await within(Promise.race(all.slice(1)), 300)));
});

test("limits the rate of logins per machine", async (t) => {
  // On a slow machine tokens would be added meanwhile.
  const { connect } = await listener(t, { ...systemClock(), now: () => 0, monotonic: () => 0 });
  let loggedIn = 0;
  for (let n = 0; n < 26; n += 1) {
    const { client, closed } = connect({}, machine);
    await Promise.race([once(client, "ready").then(() => undefined), closed]);
    const forwarded = await new Promise<boolean>((resolve) => {
      void closed.then(() => resolve(false));
      try {
        client.forwardIn("127.0.0.1", 22, (error) => resolve(!error));
      } catch {
        resolve(false);
      }
    });
    if (forwarded) loggedIn += 1;
    client.destroy();
  }
  assert.equal(loggedIn, 20);
});
