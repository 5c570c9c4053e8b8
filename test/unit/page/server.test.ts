import assert from "node:assert/strict";
import { type IncomingMessage, request as plainRequest } from "node:http";
import { type RequestOptions, request as tlsRequest } from "node:https";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { makeSelfSigned } from "../../../src/certificates/self-signed.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { createPage } from "../../../src/page/server.ts";
import type { ReadGate } from "../../../src/report/reported-node.ts";
import { fakeFleet, fakeMachine, fakeNodeWork, fakeReports } from "../../fakes/page.ts";
import { settable } from "../server/harness.ts";
import { testCA } from "../server/pki.ts";

type Gates = Readonly<Record<string, ReadGate | undefined>>;

/** A page on loopback, of a release with the machine `far` of another replica. @param open false to serve it with TLS. */
async function served(open: boolean, gates: Gates) {
  const clock = systemClock();
  const names = Object.keys(gates);
  const fleet = fakeFleet([fakeMachine("far")]);
  const reports = { ...fakeReports(names, clock), fleet };
  const works = names.map((name) => {
    const gate = gates[name];
    const work = { ...fakeNodeWork({ name, pods: 1 }, clock.now), ...(gate && { gate }) };
    reports.node(name)?.onRunning(work);
    return work;
  });
  const log = silentLog();
  const page = createPage({ address: "127.0.0.1", port: 0, reports, version: "1", clock, log }, open);
  const stop = new AbortController();
  const ended = page.run(stop.signal);
  await page.ready(stop.signal);
  return {
    port: page.address()?.port ?? 0,
    looks: () => works.reduce((sum, { looks }) => sum + looks(), 0),
    fleetLooks: fleet.looks,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await ended;
    },
  };
}

/** A response, or the beginning of a continuing one, up to `until`. */
async function ask(make: typeof plainRequest, options: RequestOptions, until?: RegExp) {
  const asked = make({ host: "127.0.0.1", agent: false, ...options });
  asked.end();
  const answer = await new Promise<IncomingMessage>((resolve, reject) =>
    asked.once("response", resolve).once("error", reject),
  );
  const parts: Buffer[] = [];
  for await (const part of answer) {
    parts.push(part as Buffer);
    if (until?.test(Buffer.concat(parts).toString())) break;
  }
  return { status: answer.statusCode, headers: answer.headers, body: Buffer.concat(parts) };
}

test("serves page, script, style and image on loopback, compressed if accepted", async () => {
  await using page = await served(true, { a: undefined });
  const get = (path: string, options: RequestOptions = {}) => ask(plainRequest, { port: page.port, path, ...options });
  for (const [path, type] of [
    ["/", /html/],
    ["/page.js", /javascript/],
    ["/page.css", /css/],
    ["/icon.svg", /svg/],
  ] as const) {
    const { status, headers, body } = await get(path);
    assert.deepEqual([status, Number(headers["content-length"])], [200, body.length], path);
    assert.match(String(headers["content-type"]), type);
    assert.match(String(headers["content-security-policy"]), /^default-src 'none'/);
    const small = await get(path, { headers: { "accept-encoding": "br, gzip" } });
    assert.deepEqual(gunzipSync(small.body), body);
    assert.equal((await get(path, { method: "HEAD" })).body.length, 0);
  }
  assert.equal((await get("/nothing")).status, 404);
});

test("the page is read-only, and refuses other host names and other sites", async () => {
  await using page = await served(true, { a: undefined });
  const status = async (options: RequestOptions) =>
    (await ask(plainRequest, { port: page.port, path: "/feed", ...options })).status;
  for (const method of ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
    assert.equal(await status({ method }), 405, method);
  assert.equal(await status({ headers: { host: "evil.example" } }), 403);
  assert.equal(await status({ headers: { "sec-fetch-site": "cross-site" } }), 403);
  assert.equal(page.looks(), 0);
});

test("the feed begins with all nodes, and polling stops when the feed's reader disconnects", async () => {
  await using page = await served(true, { a: undefined });
  const { status, headers, body } = await ask(plainRequest, { port: page.port, path: "/feed" }, /"kind":"usage"/);
  assert.deepEqual([status, headers["content-type"]], [200, "text/event-stream; charset=utf-8"]);
  assert.match(body.toString(), /^retry: 1000\n\ndata: \{"kind":"hello".*"nodes":\["a"\]/);
  assert.equal(page.looks(), 1);
});

test("on loopback, the feed has the machines of other replicas", async () => {
  await using page = await served(true, { a: undefined });
  const { body } = await ask(plainRequest, { port: page.port, path: "/feed" }, /"kind":"machine"/);
  assert.match(body.toString(), /"fleet":true/);
  assert.match(body.toString(), /data: \{"kind":"machine","machine":\{"name":"far","owner":"graftlet-b"/);
});

async function gate(ca: string, may: (user: string, verb: string, subresource: string) => boolean): Promise<ReadGate> {
  const own = await makeSelfSigned("node", ["127.0.0.1"], Date.now());
  return {
    config: { anonymous: false, tlsMinVersion: "", tlsCipherSuites: [] },
    certificate: settable(own),
    clientCA: settable<string | undefined>(ca),
    authenticator: { byToken: (token) => Promise.resolve(token === "good" ? { name: "bob", groups: [] } : undefined) },
    authorizer: { allowed: ({ name }, verb, subresource) => Promise.resolve(may(name, verb, subresource)) },
  };
}

test("with TLS, each caller sees the nodes that the kubelet API authorizes", async () => {
  const ca = await testCA("cluster");
  const asked: string[] = [];
  const all = await gate(ca.certificate, (user, verb, subresource) => {
    asked.push(`${user} ${verb} ${subresource}`);
    return true;
  });
  const alice = await gate(ca.certificate, (user) => user === "alice");
  const noLogs = await gate(ca.certificate, (_user, _verb, subresource) => subresource !== "log");
  await using page = await served(false, { all, alice, noLogs, unserved: undefined });
  const tls = (options: RequestOptions, path = "/feed") =>
    ask(tlsRequest, { port: page.port, path, rejectUnauthorized: false, ...options }, /"nodes":\[.*\]/);
  assert.equal((await tls({})).status, 401);
  assert.equal((await tls({}, "/")).status, 401);
  assert.equal((await tls({ headers: { authorization: "Bearer bad" } })).status, 401);
  const bob = await tls({ headers: { authorization: "Bearer good" } });
  assert.match(bob.body.toString(), /"nodes":\["all"\]/);
  assert.deepEqual(asked, ["bob get pods", "bob get stats", "bob get log"]);
});

test("with TLS, no caller sees machines of other replicas, as nothing here can authorize it for them", async () => {
  const all = await gate((await testCA("cluster")).certificate, () => true);
  await using page = await served(false, { all });
  const headers = { authorization: "Bearer good" };
  const options = { port: page.port, path: "/feed", rejectUnauthorized: false, headers };
  // Usage is measured again after three seconds: messages about the release would have come by then.
  const { body } = await ask(tlsRequest, options, /"kind":"usage".*"kind":"usage"/s);
  assert.match(body.toString(), /"nodes":\["all"\],"fleet":false/);
  assert.doesNotMatch(body.toString(), /far|graftlet-b/);
  assert.equal(page.fleetLooks(), 0);
});

test("with TLS, a token that one node's API server rejects is not reviewed again by its other nodes", async () => {
  const [cluster, other] = [(await testCA("cluster")).certificate, (await testCA("other")).certificate];
  let reviews = 0;
  const counted = async (ca: string) => ({
    ...(await gate(ca, () => true)),
    authenticator: { byToken: () => Promise.resolve(void (reviews += 1)) },
  });
  await using page = await served(false, {
    a: await counted(cluster),
    b: await counted(cluster),
    c: await counted(cluster),
    d: await counted(other),
  });
  const headers = { authorization: "Bearer bad" };
  const { status } = await ask(tlsRequest, { port: page.port, path: "/feed", rejectUnauthorized: false, headers });
  assert.deepEqual([status, reviews], [401, 2]);
});

test("with TLS, a caller without access to any node gets the kubelet API's refusal", async () => {
  const none = await gate((await testCA("cluster")).certificate, () => false);
  await using page = await served(false, { none });
  const options = { port: page.port, rejectUnauthorized: false, headers: { authorization: "Bearer good" } };
  for (const path of ["/", "/feed", "/page.js"]) {
    const { status, body } = await ask(tlsRequest, { ...options, path });
    assert.equal(status, 403);
    assert.match(body.toString(), /^Forbidden \(user=bob, verb=get, resource=nodes/);
  }
  assert.equal(page.looks(), 0);
});

test("with TLS, connections fail until a node has a certificate", async () => {
  const { certificate, ...rest } = await gate((await testCA("cluster")).certificate, () => true);
  const later = settable<ReturnType<typeof certificate.current>>(undefined);
  await using page = await served(false, { later: { ...rest, certificate: later } });
  const options = { port: page.port, rejectUnauthorized: false, headers: { authorization: "Bearer good" } };
  await assert.rejects(ask(tlsRequest, options));
  later.set(certificate.current());
  assert.equal((await ask(tlsRequest, options)).status, 200);
});

test("a client certificate is valid only for nodes whose CA signed it", async () => {
  const [ca, otherCA] = [await testCA("cluster"), await testCA("another cluster")];
  const own = await gate(ca.certificate, (user) => user === "alice");
  const foreign = await gate(otherCA.certificate, (user) => user === "alice");
  await using page = await served(false, { own, foreign });
  const options = { port: page.port, path: "/feed", rejectUnauthorized: false };
  const seen = await ask(tlsRequest, { ...options, ...(await ca.client("CN=alice")) }, /"nodes":\[.*\]/);
  assert.match(seen.body.toString(), /"nodes":\["own"\]/);
  assert.equal((await ask(tlsRequest, { ...options, ...(await otherCA.client("CN=alice")) })).status, 401);
});
