import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { type Socket, createServer } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { type TestContext, test } from "node:test";
import type { PluginHandler, RegisteringPlugin } from "../../../src/plugins/ports.ts";
import { localHost } from "../../../providers/local/host.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { createPluginManager } from "../../../src/plugins/manager.ts";
import { startTestDriver, type TestDriverOptions } from "../../harness/csi-driver.ts";
import { waitFor } from "../../harness/wait.ts";
import { silent } from "../api/fake-client.ts";

const until = (what: string, poll: () => boolean) => waitFor(what, poll, { everyMs: 5, timeoutMs: 20_000 });

/** Plugin manager with a temporary root directory, whose handler records its calls. */
async function rig(t: TestContext, handler: Partial<PluginHandler> = {}) {
  const rootDir = mkdtempSync(join(tmpdir(), "graftlet-plugins-"));

  const asked: string[] = [];
  let counted = "";
  const note = (what: string, { name, endpoint }: RegisteringPlugin) =>
    void asked.push(`${what} ${name} ${endpoint.replace(rootDir, "")}`);
  const clock = systemClock();
  const manager = createPluginManager({
    host: localHost({ clock }),
    directory: join(rootDir, "plugins_registry"),
    handlers: {
      CSIPlugin: {
        validate: (plugin) => note("validate", plugin),
        register: async (plugin) => note("register", plugin),
        deregister: async (plugin) => note("deregister", plugin),
        ...handler,
      },
    },
    measures: {
      changed(registered, found) {
        const names = (sockets: readonly string[]) => sockets.map((socket) => basename(socket)).join();
        counted = `${names(registered)} of ${names(found)}`;
      },
    },
    clock,
    log: silent,
  });
  const ending = new AbortController();
  const running = manager.run(ending.signal);
  t.after(async () => {
    ending.abort();
    await running;
    rmSync(rootDir, { recursive: true, force: true });
  });
  const driver = async (more: Partial<TestDriverOptions> = {}) => {
    const made = await startTestDriver({ name: "d", rootDir, disks: rootDir, run: async () => undefined, ...more });
    t.after(() => made.stop());
    return made;
  };
  const directory = join(rootDir, "plugins_registry");
  return { asked, driver, directory, counted: () => counted };
}

const [validated, registered, gone] = ["validate", "register", "deregister"].map(
  (what) => `${what} d /plugins/d/csi.sock`,
);

test("registers and notifies a plugin, and deregisters it when its socket is removed", async (t) => {
  const { asked, driver, counted } = await rig(t);
  const plugin = await driver();
  await until("the plugin to be told", () => plugin.told.length === 1);
  assert.deepEqual(plugin.told, [{ pluginRegistered: true, error: "" }]);
  assert.deepEqual(asked, [validated, registered]);
  await until("the plugin to be counted", () => counted() === "d-reg.sock of d-reg.sock");
  plugin.stop();
  await until("the plugin to be given up", () => asked.length === 3);
  assert.deepEqual(asked, [validated, registered, gone]);
});

test("finds a socket in a subdirectory, and ignores a hidden one", async (t) => {
  const { asked, driver } = await rig(t);
  const hidden = await driver({ name: "hidden", socket: ".hidden.sock" });
  const plugin = await driver({ socket: "below/more/reg.sock" });
  await until("the plugin to be told", () => plugin.told.length === 1);
  assert.deepEqual(asked, [validated, registered]);
  assert.deepEqual(hidden.calls, []);
});

test("re-registers a plugin whose socket is replaced", async (t) => {
  const { asked, driver } = await rig(t);
  const old = await driver();
  await until("the first to be told", () => old.told.length === 1);
  old.stop();
  const young = await driver();
  await until("the second to be told", () => young.told.length === 1);
  assert.deepEqual(asked, [validated, registered, gone, validated, registered]);
});

test("notifies a plugin that its type is unknown, and retries later", async (t) => {
  const { asked, driver } = await rig(t);
  const plugin = await driver({ plugin: { type: "Toaster" } });
  await until("the plugin to be told twice", () => plugin.told.length === 2);
  const [first] = plugin.told;
  assert.equal(first?.pluginRegistered, false);
  assert.match(
    first?.error ?? "",
    /^RegisterPlugin error -- no handler registered for plugin type: Toaster at socket \/.*\/d-reg\.sock$/,
  );
  assert.deepEqual(asked, []);
});

test("tells a plugin why its handler rejected it", async (t) => {
  const refuse = (why: string) => () => {
    throw new Error(why);
  };
  const invalid = await (await rig(t, { validate: refuse("no version") })).driver();
  await until("the plugin to be told", () => invalid.told.length === 1);
  assert.equal(invalid.told[0]?.error, "RegisterPlugin error -- plugin validation failed with err: no version");
  const unfit = await (await rig(t, { register: async () => refuse("no node")() })).driver();
  await until("the plugin to be told", () => unfit.told.length === 1);
  assert.equal(unfit.told[0]?.error, "RegisterPlugin error -- plugin registration failed with err: no node");
});

test("a plugin without an endpoint is called on its registration socket", async (t) => {
  const { asked, driver } = await rig(t);
  const plugin = await driver({ plugin: { endpoint: "" } });
  await until("the plugin to be told", () => plugin.told.length === 1);
  assert.deepEqual(asked, ["validate d /plugins_registry/d-reg.sock", "register d /plugins_registry/d-reg.sock"]);
});

test("registers at most sixteen plugins concurrently", async (t) => {
  const { directory } = await rig(t);
  mkdirSync(directory, { recursive: true });
  const open = new Set<Socket>();
  for (let at = 0; at < 20; at += 1) {
    const server = createServer((socket) => {
      open.add(socket.on("error", () => undefined));
      socket.on("close", () => open.delete(socket));
    });
    await once(server.listen(join(directory, `${at}.sock`)), "listening");
    t.after(() => {
      server.close();
      for (const socket of open) socket.destroy();
    });
  }
  await until("sixteen to be asked", () => open.size >= 16);
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(open.size, 16);
});
