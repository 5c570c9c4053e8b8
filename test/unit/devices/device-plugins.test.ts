import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { waitFor } from "../../harness/wait.ts";
import { allocatorOf, asking, elsewhere, resource, rig, signal } from "./rig.ts";

const until = (what: string, poll: () => boolean) => waitFor(what, poll, { everyMs: 5, timeoutMs: 20_000 });

test("asks a registered plugin for its options once, and adds its devices to the node", async (t) => {
  const node = await rig(t);
  assert.equal(node.shown(), "-/-");
  const plugin = await node.plugin();
  await plugin.register();
  await until("devices", () => node.shown() === "2/2");
  assert.deepEqual(plugin.calls, ["GetDevicePluginOptions", "ListAndWatch"]);
  assert.ok(node.hurried() > 0, "the node's status is looked at");

  plugin.show(["a", "b:Unhealthy"]);
  await until("one to be unhealthy", () => node.shown() === "1/2");
  plugin.show(["a", "b"]);
  await until("both to be healthy", () => node.shown() === "2/2");
  plugin.show(["b"]);
  await until("one to be gone", () => node.shown() === "1/1");
});

test("rejects a plugin whose GetDevicePluginOptions fails, with the reason", async (t) => {
  const node = await rig(t);
  const plugin = await node.plugin();
  plugin.break("GetDevicePluginOptions", "GetDevicePluginOptions failed");
  await assert.rejects(plugin.register(), {
    details: "failed to get device plugin options: rpc error: code = Unknown desc = GetDevicePluginOptions failed",
  });
  assert.deepEqual(plugin.calls, ["GetDevicePluginOptions"]);
  assert.equal(node.shown(), "-/-");
  assert.deepEqual(node.measured, [`registering ${resource}`], "who is refused has registered, too");
});

test("a plugin whose device stream fails at once has capacity 0, and is not called again", async (t) => {
  const node = await rig(t);
  const plugin = await node.plugin();
  plugin.break("ListAndWatch", "ListAndWatch failed");
  await plugin.register();
  await until("the resource", () => node.shown() === "0/0");
  assert.deepEqual(plugin.calls, ["GetDevicePluginOptions", "ListAndWatch"]);
  // The plugin has not listed devices yet: none can be allocated.
  assert.equal(await allocatorOf(node).allocate(asking(1), [], signal), undefined);
  assert.equal(allocatorOf(node).allocatable(asking(1))[resource], "0");
});

test("if a plugin dies or its stream breaks, keeps its capacity with all devices unhealthy until it is back", async (t) => {
  const node = await rig(t);
  const first = await node.plugin();
  await first.register();
  await until("devices", () => node.shown() === "2/2");
  first.break("ListAndWatch", "ListAndWatch failed");
  await until("none to be healthy", () => node.shown() === "0/2");
  assert.equal(first.calls.length, 2);

  const second = await node.plugin({ socket: "second.sock", devices: ["a", "b", "c"] });
  await second.register();
  await until("devices again", () => node.shown() === "3/3");
  second.die();
  await until("none to be healthy", () => node.shown() === "0/3");
});

test("replaces a plugin by a newer one, and ignores the old one's later disconnect", async (t) => {
  const node = await rig(t);
  const [old, young] = [await node.plugin(), await node.plugin({ socket: "young.sock", devices: ["x"] })];
  await old.register();
  await until("devices", () => node.shown() === "2/2");
  await young.register();
  await until("the other's devices", () => node.shown() === "1/1");
  old.show(["a", "b", "c"]);
  old.die();
  young.show(["x", "y"]);
  await until("its list to go on", () => node.shown() === "2/2");
  assert.equal(node.hurried(), 3, "each list triggers an update, the old plugin's end does not");
});

for (const [how, cut] of [
  ["whose process ends", (connection: Socket) => connection.destroy()],
  ["that only closes its side", (connection: Socket) => connection.end()],
] as const)
  test(`detects the loss of a plugin ${how} without an HTTP/2 GOAWAY`, async (t) => {
    const node = await rig(t);
    const plugin = await node.plugin();
    const connections: Socket[] = [];
    const way = createServer({ allowHalfOpen: true }, (connection) => {
      connections.push(connection);
      const onward = connect(join(node.directory, "test.sock"));
      connection.pipe(onward);
      // Data that the plugin sends after the cut is lost.
      onward.on("data", (chunk) => connection.writable && connection.write(chunk));
      for (const end of [connection, onward]) end.on("error", () => {});
      connection.on("close", () => onward.destroy());
    });
    t.after(() => way.close());
    await new Promise<void>((resolve) => way.listen(join(node.directory, "way.sock"), resolve));
    await plugin.register({ endpoint: "way.sock" });
    await until("devices", () => node.shown() === "2/2");
    for (const connection of connections) cut(connection);
    await until("none to be healthy", () => node.shown() === "0/2");
  });

test("detects the loss of a plugin on a remote target", async (t) => {
  const node = await rig(t, elsewhere);
  const plugin = await node.plugin();
  plugin.break("GetDevicePluginOptions", "not yet");
  await assert.rejects(plugin.register(), { details: /desc = not yet$/ });
  const other = await node.plugin({ socket: "other.sock" });
  await other.register();
  await until("devices", () => node.shown() === "2/2");
  assert.equal(await allocatorOf(node).allocate(asking(2), [], signal), undefined);
  other.show(["a", "b:Unhealthy"]);
  await until("one to be unhealthy", () => node.shown() === "1/2");
  other.die();
  await until("none to be healthy", () => node.shown() === "0/2");
});

test("accepts a very long device list", async (t) => {
  const node = await rig(t);
  const devices = Array.from({ length: 5000 }, (_, index) => `gpu-${"x".repeat(50)}-${index}`);
  await (await node.plugin({ devices })).register();
  await until("devices", () => node.shown() === "5000/5000");
});

test("rejects invalid registrations with a reason", async (t) => {
  const node = await rig(t);
  const plugin = await node.plugin();
  for (const [request, details] of [
    [{ version: "v1" }, 'requested API version "v1" is not supported by kubelet. Supported version is ["v1beta1"]'],
    [{ resourceName: "cpu" }, 'the ResourceName "cpu" is invalid'],
    [{ resourceName: "kubernetes.io/gpu" }, 'the ResourceName "kubernetes.io/gpu" is invalid'],
    [{ resourceName: "a.b/c/d" }, 'the ResourceName "a.b/c/d" is invalid'],
    [
      { endpoint: "../../run/other.sock" },
      'the endpoint "../../run/other.sock" is invalid: it must be a socket in the directory of kubelet.sock',
    ],
    [
      { endpoint: "kubelet.sock" },
      'the endpoint "kubelet.sock" is invalid: it must be a socket in the directory of kubelet.sock',
    ],
  ] as const)
    await assert.rejects(plugin.register(request), { details });
  assert.deepEqual(plugin.calls, []);
});

test("accepts a plugin that registers shortly before it listens", async (t) => {
  const node = await rig(t);
  const early = await node.plugin({ socket: "early.sock" });
  const registered = early.register({ endpoint: "late.sock" });
  const late = await node.plugin({ socket: "late.sock", devices: ["z"] });
  await registered;
  await until("its devices", () => node.shown() === "1/1");
  assert.deepEqual(early.calls, []);
  assert.equal(late.calls.length, 2);
});

test("removes stale sockets but no other files at start, and its own socket at the end", async (t) => {
  const node = await rig(t);
  const left = createServer();
  await new Promise<void>((resolve) => left.listen(join(node.directory, "left.sock"), resolve));
  writeFileSync(join(node.directory, "DEPRECATION"), "");
  t.after(() => left.close());
  await node.stop();
  assert.ok(!existsSync(join(node.directory, "kubelet.sock")));
  await node.restarted();
  assert.ok(!existsSync(join(node.directory, "left.sock")));
  assert.ok(existsSync(join(node.directory, "DEPRECATION")));
});

test("rejects an invalid plugin in plugins_registry with the kubelet's message", async (t) => {
  const { handler } = (await rig(t)).devices;
  const plugin = { name: resource, endpoint: "/somewhere/gpu.sock", versions: ["v1beta1"] };
  handler.validate(plugin);
  assert.throws(() => handler.validate({ ...plugin, versions: ["v1", "v2"] }), {
    message: "manager version, v1beta1, is not among plugin supported versions [v1 v2]",
  });
  assert.throws(() => handler.validate({ ...plugin, name: "gpu" }), {
    message: 'invalid name of device plugin socket: the ResourceName "gpu" is invalid',
  });
});

test("keeps a plugin in plugins_registry connected until the plugin's socket is removed", async (t) => {
  const node = await rig(t);
  const { handler } = node.devices;
  const made = async (socket: string) => {
    await node.plugin({ socket });
    return { name: resource, endpoint: join(node.directory, socket), versions: ["v1beta1"] };
  };
  const [first, second] = [await made("first.sock"), await made("second.sock")];
  await handler.register(first, signal);
  await until("devices", () => node.shown() === "2/2");
  await handler.register(second, signal);
  await until("devices of the second", () => node.shown() === "2/2");
  await handler.deregister(first, signal);
  await handler.deregister({ ...first, endpoint: "/unknown.sock" }, signal);
  assert.equal(node.shown(), "2/2");
  await handler.deregister(second, signal);
  await until("none to be healthy", () => node.shown() === "0/2");
});
