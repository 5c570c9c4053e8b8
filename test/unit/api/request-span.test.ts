import assert from "node:assert/strict";
import { type RequestListener, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { createApiClient } from "../../../src/api/client.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { type Tracer, noTracer } from "../../../src/lib/tracer.ts";
import { openTracer } from "../../../src/tracing/tracer.ts";
import { startCollector } from "../../harness/otlp.ts";
import { silent } from "./fake-client.ts";

const { signal } = new AbortController();

/** A traced client of a server on loopback. */
async function connected(listener: RequestListener, tracer: Tracer) {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const read = () => ({ cluster: { name: "c", server: url, skipTLSVerify: false }, user: { name: "u" } });
  const common = { clock: systemClock(), log: silent, userAgent: "graftlet/test", qps: 0, burst: 0 };
  const client = createApiClient({ ...common, access: { name: "test", path: undefined, read }, tracer });
  const close = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  return {
    client,
    url,
    close,
    async [Symbol.asyncDispose]() {
      await client[Symbol.asyncDispose]();
      await close();
    },
  };
}

test("records a span for responses, refusals, watches and lost connections, and propagates the trace", async () => {
  await using collector = await startCollector();
  const config = { endpoint: collector.endpoint, samplingRatePerMillion: 1_000_000 };
  const tracer = await openTracer(config, { nodeName: "n", clock: systemClock(), log: silent });
  const carried: unknown[] = [];
  const listener: RequestListener = (request, response) => {
    carried.push(request.headers["traceparent"]);
    response.statusCode = request.url === "/gone" ? 404 : 200;
    response.end(request.url === "/w?watch=true" ? "" : '{"kind":"Thing"}');
  };
  await using t = await connected(listener, tracer);
  await tracer.span("pass", { parent: "none" }, () => t.client.create("/a", {}, { signal }));
  await assert.rejects(t.client.get("/gone", { signal, query: {} }), { code: "not_found" });
  for await (const _event of t.client.watch("/w", { signal })) assert.fail();
  await t.close();
  await assert.rejects(t.client.get("/a", { signal }), { code: "unavailable" });
  await tracer[Symbol.asyncDispose]();
  const [created, pass, refused, watched, lost] = collector.spans;
  const { port } = new URL(t.url);
  const common = { "server.address": "127.0.0.1", "server.port": port, "network.protocol.version": "1.1" };
  const answered = (method: string, path: string, status: number) => ({
    "http.request.method": method,
    "url.full": `${t.url}${path}`,
    ...common,
    "http.response.status_code": String(status),
  });
  assert.deepEqual([created?.name, created?.kind, created?.parentSpanId], ["HTTP POST", 3, pass?.spanId]);
  assert.deepEqual(created?.attributes, answered("POST", "/a", 200));
  assert.deepEqual(refused?.attributes, { ...answered("GET", "/gone", 404), "error.type": "404" });
  assert.deepEqual([refused?.parentSpanId, refused?.error, created?.error], ["", "", undefined]);
  assert.deepEqual([watched?.attributes, watched?.error], [answered("GET", "/w?watch=true", 200), undefined]);
  assert.deepEqual([lost?.name, lost?.attributes["error.type"]], ["HTTP GET", "unavailable"]);
  assert.match(lost?.error ?? "", /^http:\/\/127\.0\.0\.1:/);
  assert.deepEqual(
    carried,
    [created, refused, watched].map((span) => `00-${span?.traceId}-${span?.spanId}-01`),
  );
});

test("does not propagate a trace for untraced requests", async () => {
  const carried: unknown[] = [];
  await using t = await connected((request, response) => {
    carried.push(request.headers["traceparent"]);
    response.end("{}");
  }, noTracer);
  await t.client.get("/a", { signal });
  assert.deepEqual(carried, [undefined]);
});
