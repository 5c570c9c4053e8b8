import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { makeSelfSigned } from "../../../src/certificates/self-signed.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { createMetricsServer, type MetricsServerDeps } from "../../../src/server/metrics-server.ts";
import { adminToken, ask } from "./harness.ts";

const certificate = await makeSelfSigned("graftlet", ["127.0.0.1"], Date.now());

/** The server of the metrics, until the test ends; `admin` by token may read them. */
async function start(t: TestContext, more: Partial<MetricsServerDeps> = {}) {
  const asked: string[] = [];
  const server = createMetricsServer({
    at: { address: "127.0.0.1", port: 0, setting: "metricsPort" },
    path: "/metrics/objects",
    certificate,
    authenticator: {
      byToken: async (token) => (token === "invalid" ? undefined : { name: token, groups: [] }),
    },
    authorizer: {
      async allowed({ name }, verb, subresource) {
        asked.push(`${name} ${verb} ${subresource}`);
        return name === adminToken;
      },
    },
    text: async () => "up 1\n",
    clock: systemClock(),
    log: silentLog(),
    ...more,
  });
  const stop = new AbortController();
  const ended = server.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await ended;
  });
  await Promise.race([server.ready(stop.signal), ended]);
  const get = async (path: string, headers?: Record<string, string>) => {
    const { status, body } = await ask({ port: server.address()?.port ?? 0 }, path, headers ? { headers } : {});
    return [status, body.trim()];
  };
  return { asked, get };
}

test("serves metrics to callers that may get nodes/metrics", async (t) => {
  const { asked, get } = await start(t);
  assert.deepEqual(await get("/metrics/objects"), [200, "up 1"]);
  assert.deepEqual(asked, [`${adminToken} get metrics`]);
  assert.deepEqual(await get("/metrics"), [404, "404 page not found"]);
});

test("refuses callers without a valid token, and those without permission", async (t) => {
  const { get } = await start(t);
  assert.deepEqual(await get("/metrics/objects", {}), [401, "Unauthorized"]);
  assert.deepEqual(await get("/metrics/objects", { authorization: "Bearer invalid" }), [401, "Unauthorized"]);
  const [status] = await get("/metrics/objects", { authorization: "Bearer guest" });
  assert.equal(status, 403);
});

test("responds 500 without the cause if the metrics cannot be read, and keeps serving", async (t) => {
  const { get } = await start(t, { text: () => Promise.reject(new Error("secret")) });
  assert.deepEqual(await get("/metrics/objects"), [500, "Internal Server Error"]);
  assert.deepEqual(await get("/other"), [404, "404 page not found"]);
});
