import assert from "node:assert/strict";
import { createServer } from "node:http2";
import type { Duplex } from "node:stream";
import { test } from "node:test";
import { createDraDriverRegistry } from "../../../src/dra/driver-registry.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { waitFor } from "../../harness/wait.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { unmeasured } from "../../fakes/measures.ts";

const never = new AbortController().signal;
const plugin = (endpoint: string, versions: readonly string[] = ["v1beta1.DRAPlugin", "v1.DRAPlugin"]) => ({
  name: "gpu.example.com",
  endpoint,
  versions,
});

/** A registry on a host where servers may listen. */
function bench() {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const usable: boolean[] = [];
  const registry = createDraDriverRegistry({
    host,
    measures: unmeasured.dra,
    onUsable: (_driver, isUsable) => void usable.push(isUsable),
    clock,
    log: silentLog(),
  });
  const listen = async (path: string) => {
    const server = createServer();
    const connections: Duplex[] = [];
    const listener = await host.listen({ unix: path }, (connection) => {
      connections.push(connection);
      server.emit("connection", connection);
    });
    return { listener, connections };
  };
  return { clock, usable, registry, listen, ...registry.handler };
}

test("rejects plugins without a supported service, with the kubelet's message", () => {
  const { validate } = bench();
  validate(plugin("/a.sock"));
  assert.throws(() => validate(plugin("/a.sock", [])), {
    message:
      "invalid supported gRPC versions of DRA driver plugin gpu.example.com at endpoint /a.sock: empty list of supported gRPC services (aka supported versions)",
  });
  assert.throws(
    () => validate(plugin("/a.sock", ["v1alpha3.Node"])),
    /none of services supported by the plugin \(\["v1alpha3.Node"\]\) are supported by the kubelet \(\["v1.DRAPlugin" "v1beta1.DRAPlugin"\]\)$/,
  );
});

test("a driver is available while a plugin of it is registered; no two of its plugins may share an endpoint", async () => {
  const { registry, register, deregister } = bench();
  assert.throws(() => registry.driver("gpu.example.com"), { message: "DRA driver gpu.example.com is not registered" });
  assert.throws(() => registry.driver(""), { message: "DRA driver name is empty" });
  await register(plugin("/a.sock"), never);
  assert.ok(registry.driver("gpu.example.com"));
  await assert.rejects(register(plugin("/a.sock"), never), {
    message: "endpoint /a.sock already registered for DRA driver plugin gpu.example.com",
  });
  await deregister(plugin("/a.sock"), never);
  assert.throws(() => registry.driver("gpu.example.com"), { code: "unavailable" });
});

test("a driver is usable while one of its plugins is connected", async () => {
  const { usable, register, deregister, listen } = bench();
  const { listener, connections } = await listen("/a.sock");
  await register(plugin("/a.sock"), never);
  await waitFor("the plugin to be connected", () => usable.at(-1) === true);
  // Not HTTP/2: the session ends with an error.
  connections[0]?.write("\0".repeat(100));
  await waitFor("the loss to be noticed", () => usable.at(-1) === false);
  await deregister(plugin("/a.sock"), never);
  await listener[Symbol.asyncDispose]();
  assert.equal(usable.at(-1), false);
});

test("prefers a connected plugin to a newer one that is not connected", async () => {
  const { usable, registry, register, listen } = bench();
  const { listener } = await listen("/old.sock");
  await register(plugin("/old.sock"), never);
  await waitFor("the plugin to be connected", () => usable.at(-1) === true);
  const old = registry.driver("gpu.example.com");
  await register(plugin("/new.sock"), never);
  assert.equal(registry.driver("gpu.example.com"), old);
  registry.close();
  await listener[Symbol.asyncDispose]();
});
