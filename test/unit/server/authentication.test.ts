import assert from "node:assert/strict";
import { Agent } from "node:https";
import { test } from "node:test";
import type { User } from "../../../src/api/access.ts";
import type { Authorizer } from "../../../src/server/ports.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { ask, settable, start } from "./harness.ts";
import { serverAuth, testCA } from "./pki.ts";

/** An authorizer that allows everything and records the callers. */
function noting(): Authorizer & { readonly users: User[] } {
  const users: User[] = [];
  return {
    users,
    allowed: (user) => {
      users.push(user);
      return Promise.resolve(true);
    },
  };
}

const nobody = { headers: {} };

test("maps a certificate's common name to the user and its organizations to groups", async () => {
  const ca = await testCA("cluster");
  const authorizer = noting();
  await using server = await start({ deps: { authorizer, clientCA: settable<string | undefined>(ca.certificate) } });
  const alice = await ca.client("CN=alice, O=admins, O=users");
  assert.equal((await ask(server, "/healthz", { ...nobody, ...alice })).status, 200);
  assert.deepEqual(authorizer.users, [{ name: "alice", groups: ["admins", "users", "system:authenticated"] }]);
});

test("ignores certificates that are from another CA, expired, for serving only, or without a name", async () => {
  const [ca, other] = [await testCA("cluster"), await testCA("cluster")];
  await using server = await start({ deps: { clientCA: settable<string | undefined>(ca.certificate) } });
  const wrong = [
    await other.client("CN=mallory, O=system:masters"),
    await ca.client("CN=late", { days: -1 }),
    await ca.client("CN=server", { usage: serverAuth }),
    await ca.client("O=nameless"),
  ];
  for (const identity of wrong) {
    assert.deepEqual(await answered(ask(server, "/healthz", { ...nobody, ...identity })), [401, "Unauthorized"]);
  }
});

test("accepts no certificate without a client CA", async () => {
  const ca = await testCA("cluster");
  await using server = await start();
  const alice = await ca.client("CN=alice, O=system:masters");
  assert.equal((await ask(server, "/healthz", { ...nobody, ...alice })).status, 401);
});

test("accepts a valid token despite an invalid certificate", async () => {
  const [ca, other] = [await testCA("cluster"), await testCA("other")];
  await using server = await start({ deps: { clientCA: settable<string | undefined>(ca.certificate) } });
  assert.equal((await ask(server, "/healthz", await other.client("CN=mallory"))).status, 200);
});

test("applies a new client CA immediately, and closes connections accepted under the old one", async () => {
  const [old, fresh] = [await testCA("cluster"), await testCA("cluster")];
  const clientCA = settable<string | undefined>(old.certificate);
  await using server = await start({ deps: { clientCA } });
  const [before, after] = [await old.client("CN=alice"), await fresh.client("CN=alice")];
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const kept = () => ask(server, "/healthz", { ...nobody, ...before, agent });
  assert.equal((await kept()).status, 200);
  clientCA.set(fresh.certificate);
  assert.equal((await ask(server, "/healthz", { ...nobody, ...after })).status, 200);
  assert.equal((await ask(server, "/healthz", { ...nobody, ...before })).status, 401);
  const reused = await kept().catch(() => ({ status: 401, headers: {} as Record<string, unknown> }));
  assert.ok(reused.status === 401 || reused.headers["connection"] === "close", "the old connection lives on");
  agent.destroy();
});

test("accepts valid bearer tokens, also as a WebSocket subprotocol", async () => {
  const authorizer = noting();
  await using server = await start({ deps: { authorizer } });
  assert.equal((await ask(server, "/healthz")).status, 200);
  assert.deepEqual(authorizer.users, [{ name: "admin", groups: ["system:authenticated"] }]);
  assert.deepEqual(await answered(ask(server, "/healthz", { headers: { authorization: "Bearer wrong" } })), [
    401,
    "Unauthorized",
  ]);
  assert.equal((await ask(server, "/healthz", { headers: { authorization: "Basic let-me-in" } })).status, 401);
  assert.equal((await ask(server, "/healthz", nobody)).status, 401);
  const token = `base64url.bearer.authorization.k8s.io.${Buffer.from("let-me-in").toString("base64url")}`;
  const upgrade = (protocols: string) => ({
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-protocol": protocols,
  });
  assert.equal((await ask(server, "/healthz", { headers: upgrade(`${token}, v4.channel.k8s.io`) })).status, 200);
  assert.equal((await ask(server, "/healthz", { headers: upgrade(token) })).status, 401);
});

test("responds 401 if token authentication fails, and logs no token", async () => {
  await using server = await start({
    deps: { authenticator: { byToken: () => Promise.reject(new Error("API server away")) } },
  });
  assert.equal((await ask(server, "/healthz")).status, 401);
  assert.match(server.logged(), /API server away/);
  assert.doesNotMatch(server.logged(), /let-me-in/);
});

test("responds 429 with Retry-After at the review limit, and logs a thousand refusals in one line", async () => {
  const busy = () => Promise.reject(new CodedError("resource_exhausted", "too many wait"));
  await using server = await start({ deps: { authenticator: { byToken: busy } } });
  for (let index = 0; index < 20; index++) {
    const { status, headers } = await ask(server, "/healthz");
    assert.deepEqual([status, headers["retry-after"]], [429, "1"]);
  }
  assert.equal(server.logged().match(/cannot authenticate the caller/g)?.length, 1);
  assert.match(server.logged(), /"times":1,/);
});

test("allows anonymous access only if configured, and not after a failed credential", async () => {
  const ca = await testCA("other");
  const authorizer = noting();
  const clientCA = settable<string | undefined>((await testCA("cluster")).certificate);
  await using server = await start({ config: { anonymous: true }, deps: { authorizer, clientCA } });
  assert.equal((await ask(server, "/healthz", nobody)).status, 200);
  assert.deepEqual(authorizer.users, [{ name: "system:anonymous", groups: ["system:unauthenticated"] }]);
  assert.equal((await ask(server, "/healthz", { headers: { authorization: "Bearer wrong" } })).status, 401);
  assert.equal((await ask(server, "/healthz", { ...nobody, ...(await ca.client("CN=mallory")) })).status, 401);
});

async function answered(asked: ReturnType<typeof ask>): Promise<[number, string]> {
  const { status, body } = await asked;
  return [status, body];
}
