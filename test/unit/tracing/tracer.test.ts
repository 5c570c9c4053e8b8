import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { type Socket, createServer } from "node:net";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../../src/lib/clock.ts";
import { createLogger } from "../../../src/lib/log.ts";
import { noTracer } from "../../../src/lib/tracer.ts";
import { openTracer } from "../../../src/tracing/tracer.ts";
import { startCollector } from "../../harness/otlp.ts";

/** A node's tracer, with its log. */
async function opened(endpoint: string | undefined, samplingRatePerMillion?: number) {
  const logged: string[] = [];
  const log = createLogger(0, { write: (line: string) => void logged.push(line) });
  const tracer = await openTracer({ endpoint, samplingRatePerMillion }, { nodeName: "n", clock: systemClock(), log });
  return { tracer, logged };
}

const remote = { trace: "0af7651916cd43dd8448eb211c80319c", span: "b7ad6b7169203331" };

test("exports spans with parents, attributes, errors and the resource", async () => {
  await using collector = await startCollector();
  const { tracer } = await opened(collector.endpoint, 1_000_000);
  const failing = tracer.span("syncPod", { attributes: { "k8s.pod.uid": "u", tries: 2 }, parent: "none" }, async () => {
    await tracer.span("call", { kind: "client" }, async (span) => span.add({ code: "OK" }));
    throw new Error("it failed");
  });
  await assert.rejects(failing, /it failed/);
  await tracer.span("fine", {}, async (span) => span.fail("but not quite"));
  await tracer[Symbol.asyncDispose]();
  const [call, sync, fine] = collector.spans;
  assert.equal(collector.spans.length, 3);
  assert.deepEqual([call?.name, call?.kind, call?.attributes], ["call", 3, { code: "OK" }]);
  assert.deepEqual([call?.traceId, call?.parentSpanId], [sync?.traceId, sync?.spanId]);
  assert.deepEqual([sync?.name, sync?.kind, sync?.parentSpanId, sync?.error], ["syncPod", 1, "", "it failed"]);
  assert.deepEqual(sync?.attributes, { "k8s.pod.uid": "u", tries: "2" });
  assert.deepEqual(sync?.resource, { "service.name": "kubelet", "host.name": "n" });
  assert.equal(sync?.scope, "k8s.io/kubernetes/pkg/kubelet");
  assert.deepEqual([fine?.parentSpanId, fine?.error], ["", "but not quite"]);
  assert.notEqual(fine?.traceId, sync?.traceId);
});

test("follows the caller's sampling decision, otherwise the rate, and propagates the trace in headers", async () => {
  await using collector = await startCollector();
  const { tracer } = await opened(collector.endpoint, 0);
  assert.deepEqual(tracer.headers(), {});
  const headersIn = (options: Parameters<typeof tracer.span>[1]) =>
    tracer.span("work", options, async () => tracer.headers()["traceparent"] ?? "");
  assert.match(await headersIn({}), /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/);
  const traceparent = `00-${remote.trace}-${remote.span}-0`;
  assert.match(
    await headersIn({ parent: { traceparent: `${traceparent}1` } }),
    new RegExp(`^00-${remote.trace}-.*-01$`),
  );
  assert.match(
    await headersIn({ parent: { traceparent: `${traceparent}0` } }),
    new RegExp(`^00-${remote.trace}-.*-00$`),
  );
  assert.match(await headersIn({ parent: { traceparent: "rubbish" } }), /-00$/);
  await tracer[Symbol.asyncDispose]();
  assert.deepEqual(
    collector.spans.map(({ traceId, parentSpanId }) => [traceId, parentSpanId]),
    [[remote.trace, remote.span]],
  );
});

test("attributes work that outlives a span to the enclosing span", async () => {
  await using collector = await startCollector();
  const { tracer } = await opened(collector.endpoint, 1_000_000);
  const go = Promise.withResolvers<void>();
  let left: Promise<void> = Promise.resolve();
  await tracer.span("outer", { parent: "none" }, async () => {
    await tracer.span("inner", {}, async () => {
      left = go.promise.then(() => tracer.span("left behind", {}, async () => undefined));
      await tracer.span("at once", {}, async () => undefined);
    });
    await tracer.span("waits", {}, async () => undefined);
  });
  go.resolve();
  await left;
  await tracer[Symbol.asyncDispose]();
  const byName = new Map(collector.spans.map((span) => [span.name, span]));
  assert.equal(byName.get("at once")?.parentSpanId, byName.get("inner")?.spanId);
  assert.equal(byName.get("waits")?.parentSpanId, byName.get("outer")?.spanId);
  assert.equal(byName.get("left behind")?.parentSpanId, "");
});

test("a missing or unresponsive collector blocks nothing and is logged at a limited rate", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-otlp-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const sockets: Socket[] = [];
  const silent = createServer((socket) => void sockets.push(socket)).listen(join(folder, "silent"));
  await once(silent, "listening");
  t.after(() => {
    silent.close();
    for (const socket of sockets) socket.destroy();
  });
  for (const name of ["none", "silent"]) {
    const { tracer, logged } = await opened(`unix://${join(folder, name)}`, 1_000_000);
    const since = performance.now();
    for (let index = 0; index < 5000; index += 1) await tracer.span("work", {}, async () => undefined);
    assert.ok(performance.now() - since < 3000, "work waits");
    await tracer[Symbol.asyncDispose]();
    assert.ok(performance.now() - since < 6000, "the end waits");
    if (name === "silent") continue;
    assert.equal(logged.length, 1, logged.join(""));
    assert.match(logged[0] ?? "", /"msg":"cannot export spans to tracing.endpoint; dropping them"/);
  }
});

test("without configuration, nothing is recorded and OpenTelemetry is not loaded", async () => {
  const { tracer } = await opened(undefined);
  assert.equal(tracer.isOn, false);
  assert.equal(await tracer.span("work", {}, async () => 5), 5);
  assert.deepEqual(tracer.headers(), noTracer.headers());
  const program = `
    import { registerHooks } from "node:module";
    const loaded = [];
    registerHooks({
      resolve(specifier, context, next) {
        if (/^@opentelemetry\\/(?!api)/.test(specifier)) loaded.push(specifier);
        return next(specifier, context);
      },
    });
    await import("./src/tracing/runtime-calls.ts");
    const { openTracer } = await import("./src/tracing/tracer.ts");
    await openTracer({}, {});
    console.log(loaded.length);
    await openTracer({ samplingRatePerMillion: 1 }, { nodeName: "n" });
    console.log(loaded.includes("@opentelemetry/sdk-trace"));`;
  const said = execFileSync(process.execPath, ["--input-type=module", "--eval", program], {
    cwd: join(import.meta.dirname, "../../.."),
    encoding: "utf8",
  });
  assert.deepEqual(said.trim().split("\n"), ["0", "true"]);
});
