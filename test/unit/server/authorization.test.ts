import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { type Authorizer } from "../../../src/server/ports.ts";
import { ask, start } from "./harness.ts";

/** Required subresources, in order, for every path and method; the kubelet's table. */
const table: readonly (readonly [method: string, path: string, verb: string, subresources: readonly string[]])[] = [
  ["GET", "/healthz", "get", ["healthz", "proxy"]],
  ["GET", "/healthz/ping", "get", ["healthz", "proxy"]],
  ["GET", "/healthz/log", "get", ["healthz", "proxy"]],
  ["GET", "/healthz/syncloop", "get", ["healthz", "proxy"]],
  ["GET", "/pods", "get", ["pods", "proxy"]],
  ["GET", "/pods/", "get", ["pods", "proxy"]],
  ["GET", "/runningpods", "get", ["pods", "proxy"]],
  ["GET", "/runningpods/", "get", ["pods", "proxy"]],
  ["GET", "/configz", "get", ["configz", "proxy"]],
  ["GET", "/flagz", "get", ["configz"]],
  ["GET", "/statusz", "get", ["statusz"]],
  ["GET", "/stats/summary", "get", ["stats"]],
  ["GET", "/metrics", "get", ["metrics"]],
  ["GET", "/metrics/cadvisor", "get", ["metrics"]],
  ["GET", "/logs/", "get", ["log"]],
  ["GET", "/logs/syslog", "get", ["log"]],
  ["POST", "/checkpoint/ns/p/c", "create", ["checkpoint"]],
  ["GET", "/containerLogs/ns/p/c", "get", ["proxy"]],
  ["POST", "/run/ns/p/c", "create", ["proxy"]],
  ["POST", "/run/ns/p/uid/c", "create", ["proxy"]],
  ["GET", "/exec/ns/p/c", "create", ["proxy"]],
  ["POST", "/exec/ns/p/uid/c", "create", ["proxy"]],
  ["GET", "/attach/ns/p/c", "create", ["proxy"]],
  ["POST", "/attach/ns/p/uid/c", "create", ["proxy"]],
  ["GET", "/portForward/ns/p", "create", ["proxy"]],
  ["POST", "/portForward/ns/p/uid", "create", ["proxy"]],
  ["GET", "/run/ns/p/c", "create", ["proxy"]],
  ["DELETE", "/exec/ns/p/c", "create", ["proxy"]],
  ["OPTIONS", "/exec/ns/p/c", "create", ["proxy"]],
  ["GET", "/execandmore", "get", ["proxy"]],
  ["GET", "/debug/pprof/heap", "get", ["proxy"]],
  ["PUT", "/debug/flags/v", "update", ["proxy"]],
  ["GET", "/podsandmore", "get", ["proxy"]],
  ["GET", "/", "get", ["proxy"]],
  ["PATCH", "/pods", "patch", ["pods", "proxy"]],
  ["DELETE", "/pods", "delete", ["pods", "proxy"]],
  ["OPTIONS", "/pods", "", ["pods", "proxy"]],
];

const upgrade = { connection: "Upgrade", upgrade: "SPDY/3.1" };

test("checks each path's subresources in order, also for upgrades, and refuses in the kubelet's words", async () => {
  const asked: string[] = [];
  const authorizer: Authorizer = {
    allowed: (user, verb, subresource, path) => {
      asked.push(`${user.name} ${verb} ${subresource} ${path}`);
      return Promise.resolve(false);
    },
  };
  await using server = await start({ deps: { authorizer } });
  for (const [method, path, verb, subresources] of table) {
    for (const extra of [{}, upgrade]) {
      asked.length = 0;
      const { status, body } = await ask(server, `${path}?command=x`, {
        method,
        headers: { authorization: "Bearer let-me-in", ...extra },
      });
      const trimmed = path === "/" ? "/" : path.replace(/\/$/, "");
      assert.deepEqual(
        asked,
        subresources.map((subresource) => `admin ${verb} ${subresource} ${trimmed}`),
        `${method} ${path}`,
      );
      assert.equal(status, 403, `${method} ${path}`);
      assert.equal(
        body,
        `Forbidden (user=admin, verb=${verb}, resource=nodes, subresource(s)=[${subresources.join(" ")}])\n`,
      );
    }
  }
});

test("responds 401 on every path without credentials, also for upgrades", async () => {
  await using server = await start();
  for (const [method, path] of table) {
    for (const headers of [{}, upgrade]) {
      const { status, body } = await ask(server, path, { method, headers });
      assert.deepEqual([status, body], [401, "Unauthorized"], `${method} ${path}`);
    }
  }
});

test("requires only one allowed subresource", async () => {
  await using server = await start({
    deps: { authorizer: { allowed: (_user, _verb, subresource) => Promise.resolve(subresource === "proxy") } },
  });
  assert.equal((await ask(server, "/pods")).status, 200);
  assert.equal((await ask(server, "/metrics")).status, 403);
});

test("responds 500 if the authorizer fails", async () => {
  await using server = await start({
    deps: { authorizer: { allowed: () => Promise.reject(new Error("API server away")) } },
  });
  const { status, body } = await ask(server, "/pods");
  assert.deepEqual(
    [status, body],
    [500, "Authorization error (user=admin, verb=get, resource=nodes, subresource=pods)"],
  );
});

test("responds 429 if the authorizer is overloaded", async () => {
  const busy = () => Promise.reject(new CodedError("resource_exhausted", "too many wait"));
  await using server = await start({ deps: { authorizer: { allowed: busy } } });
  const { status, headers } = await ask(server, "/pods");
  assert.deepEqual([status, headers["retry-after"]], [429, "1"]);
});

test("responds 404 to malformed paths before any review", async () => {
  let asked = 0;
  const authorizer: Authorizer = { allowed: () => Promise.resolve(++asked > 0) };
  await using server = await start({ deps: { authorizer } });
  const paths = [
    "/pods/../exec/ns/p/c",
    "/healthz/%2e%2e/pods",
    "//pods",
    "/pods%2f",
    "/healthz/%00",
    "/healthz/%zz",
    "/exec/ns//c",
    "/exec/ns/p%5Cq/c",
  ];
  for (const path of paths) assert.equal((await ask(server, path)).status, 404, path);
  assert.equal(asked, 0);
});

test("responds 404 to unknown paths and 405 to unsupported methods", async () => {
  await using server = await start();
  assert.deepEqual(await statusAndBody(server, "/nothing"), [404, "404: Page Not Found"]);
  assert.deepEqual(await statusAndBody(server, "/metrics/others"), [404, "404: Page Not Found"]);
  assert.deepEqual(await statusAndBody(server, "/stats"), [404, "404: Page Not Found"]);
  assert.deepEqual(await statusAndBody(server, "/PODS"), [404, "404: Page Not Found"]);
  assert.deepEqual(await statusAndBody(server, "/run/ns/p/c"), [405, "405: Method Not Allowed"]);
  assert.deepEqual(await statusAndBody(server, "/pods", "DELETE"), [405, "405: Method Not Allowed"]);
  const allowed = async (path: string) => (await ask(server, path, { method: "PATCH" })).headers.allow;
  assert.deepEqual(
    [await allowed("/pods"), await allowed("/exec/ns/p/c"), await allowed("/checkpoint/ns/p/c")],
    ["GET", "GET, POST", "POST"],
  );
});

test("serves health and metrics for any method", async () => {
  const text = () => Promise.resolve("a 1\n");
  const metrics = { text, probes: text, slis: text, resetSlis: () => undefined };
  const stats = { summary: () => Promise.resolve({}), resource: text, cadvisor: text };
  await using server = await start({ deps: { metrics, stats } });
  for (const path of ["/healthz", "/healthz/ping", "/metrics", "/metrics/probes", "/metrics/cadvisor"])
    assert.deepEqual(await statusAndBody(server, path, "HEAD"), [200, ""], path);
  assert.deepEqual(await statusAndBody(server, "/metrics/resource", "POST"), [200, "a 1\n"]);
});

test("serves only health, pods, metrics and statistics without debugging handlers", async () => {
  const metrics = {
    text: () => Promise.resolve("a 1\n"),
    probes: () => Promise.resolve("b 1\n"),
    slis: () => Promise.resolve("e 1\n"),
    resetSlis: () => undefined,
  };
  const stats = {
    summary: () => Promise.resolve({}),
    resource: () => Promise.resolve("c 1\n"),
    cadvisor: () => Promise.resolve("d 1\n"),
  };
  await using server = await start({ config: { enableDebuggingHandlers: false }, deps: { metrics, stats } });
  for (const path of [
    "/run/ns/p/c",
    "/exec/ns/p/c",
    "/attach/ns/p/c",
    "/portForward/ns/p",
    "/containerLogs/ns/p/c",
    "/runningpods/",
    "/logs/",
  ]) {
    assert.deepEqual(await statusAndBody(server, path), [405, "Debug endpoints are disabled.\n"], path);
  }
  assert.equal((await ask(server, "/configz")).status, 404);
  assert.equal((await ask(server, "/checkpoint/ns/p/c", { method: "POST" })).status, 404);
  const served = ["/pods", "/healthz", "/metrics", "/metrics/probes", "/metrics/slis", "/metrics/resource"];
  for (const path of [...served, "/metrics/cadvisor", "/stats/summary"])
    assert.equal((await ask(server, path)).status, 200, path);
});

async function statusAndBody(
  server: { readonly port: number },
  path: string,
  method = "GET",
): Promise<[number, string]> {
  const { status, body } = await ask(server, path, { method });
  return [status, body];
}
