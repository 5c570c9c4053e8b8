import assert from "node:assert/strict";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import type { ServingMeasures } from "../../../src/server/ports.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { backend, spdy, upgrade } from "./backend.ts";
import { ask, runtimeOf, start } from "./harness.ts";

const texts = {
  text: () => Promise.resolve("up 1\n"),
  probes: () => Promise.resolve("prober_probe_total 2\n"),
  slis: () => Promise.resolve("kubernetes_healthcheck 1\n"),
  resetSlis: () => undefined,
};
const textFormat = "text/plain; version=0.0.4; charset=utf-8";

test("serves metrics in Prometheus text format regardless of Accept; probe metrics have a separate path", async () => {
  await using server = await start({ deps: { metrics: texts } });
  for (const accept of ["application/openmetrics-text;version=1.0.0", "text/plain;version=0.0.4", "*/*"]) {
    const headers = { authorization: "Bearer let-me-in", accept };
    const { status, body, headers: got } = await ask(server, "/metrics", { headers });
    assert.deepEqual([status, body, got["content-type"]], [200, "up 1\n", textFormat]);
  }
  assert.equal((await ask(server, "/metrics/probes")).body, "prober_probe_total 2\n");
});

test("counts health check results, serves them at a separate path and resets them on DELETE", async () => {
  const checked: unknown[] = [];
  let resets = 0;
  const health = { checked: (...given: readonly unknown[]) => void checked.push(given) };
  const metrics = { ...texts, resetSlis: () => void (resets += 1) };
  await using server = await start({ deps: { metrics, health, syncLoop: () => "slow" } });
  await ask(server, "/healthz?exclude=log");
  await ask(server, "/healthz/syncloop");
  assert.deepEqual(checked, [
    ["ping", true],
    ["syncloop", false],
    ["device-plugin", true],
  ]);
  const shown = await ask(server, "/metrics/slis");
  assert.deepEqual([shown.body, shown.headers["content-type"], resets], ["kubernetes_healthcheck 1\n", textFormat, 0]);
  const { status, body } = await ask(server, "/metrics/slis", { method: "DELETE" });
  assert.deepEqual([status, body, resets], [200, "metrics reset\n", 1]);
});

test("compresses metrics for clients that accept gzip", async () => {
  const { promise, resolve } = Promise.withResolvers<Buffer>();
  await using server = await start({
    deps: { metrics: { ...texts, text: () => Promise.resolve("up 1\n".repeat(500)) } },
  });
  const { request } = await import("node:https");
  const headers = { authorization: "Bearer let-me-in", "accept-encoding": "gzip" };
  request({ host: "127.0.0.1", port: server.port, path: "/metrics", rejectUnauthorized: false, agent: false, headers })
    .on("response", (response) => {
      assert.equal(response.headers["content-encoding"], "gzip");
      void response.toArray().then((parts) => resolve(Buffer.concat(parts)));
    })
    .end();
  assert.equal(gunzipSync(await promise).toString(), "up 1\n".repeat(500));
});

test("measures requests from first to last byte, including refused ones, and streams until they end", async (t) => {
  const open = new Map<string, number>();
  const said: string[] = [];
  const serving: ServingMeasures = {
    webSocket: (area) => void said.push(`WebSocket ${area}`),
    began(method, area) {
      const key = `${method} ${area}`;
      said.push(key);
      open.set(key, (open.get(key) ?? 0) + 1);
      return () => void open.set(key, (open.get(key) ?? 0) - 1);
    },
  };
  const { endpoint, connections } = await backend(t, () => undefined);
  const pod = aPod({ containers: [aContainer("c")] }, { name: "p", namespace: "ns" });
  const runtime = runtimeOf({
    exec: () => Promise.resolve(endpoint),
    listContainers: () => Promise.resolve([{ id: "id", createdAt: 1n }] as never),
  });
  await using server = await start({ pods: [pod], deps: { metrics: texts, serving, runtime } });
  await ask(server, "/metrics/probes?x=/a");
  await ask(server, "/healthz/ping", { headers: {} });
  const stream = await upgrade(server, "/exec/ns/p/c?command=sh&output=1", spdy);
  assert.equal(open.get("POST exec"), 1);
  stream.socket.destroy();
  for (const connection of connections) connection.destroy();
  while (open.get("POST exec") !== 0) await new Promise(setImmediate);
  await ask(server, "/exec/ns/none/c?command=sh&output=1", {
    headers: { authorization: "Bearer let-me-in", upgrade: "websocket" },
  });
  assert.deepEqual(said, ["GET metrics/probes", "GET healthz", "POST exec", "GET exec", "WebSocket exec"]);
  assert.deepEqual([...open.values()], [0, 0, 0, 0]);
});

test("answers requests even if no metrics are configured", async () => {
  await using server = await start({ deps: { serving: unmeasured.serving } });
  assert.equal((await ask(server, "/healthz")).body, "ok");
});
