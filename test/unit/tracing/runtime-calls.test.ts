import assert from "node:assert/strict";
import { test } from "node:test";
import { tracedRuntime } from "../../../src/tracing/runtime-calls.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";
import { fakeTracer } from "../../fakes/tracer.ts";

test("makes each runtime call a span named after its gRPC method, with its status code", async () => {
  const { signal } = new AbortController();
  const tracer = fakeTracer();
  const traced = tracedRuntime(fakeRuntime({ clock: fakeClock(), events: false }), tracer);
  assert.ok((await traced.status(signal)).status);
  await traced.listImages(signal);
  await assert.rejects(traced.containerStatus("none", signal), { code: "not_found" });
  assert.deepEqual(
    tracer.spans.map(({ name, kind, added }) => [name, kind, added["rpc.response.status_code"]]),
    [
      ["runtime.v1.RuntimeService/Status", "client", "OK"],
      ["runtime.v1.ImageService/ListImages", "client", "OK"],
      ["runtime.v1.RuntimeService/ContainerStatus", "client", "NotFound"],
    ],
  );
  assert.deepEqual(tracer.spans[0]?.attributes, {
    "rpc.system.name": "grpc",
    "rpc.method": "runtime.v1.RuntimeService/Status",
  });
  assert.match(tracer.spans[2]?.failed ?? "", /none/);
  assert.equal(traced.checkpointContainer, undefined);
});
