import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import ssh2 from "ssh2";
import { createReverseListeners } from "../../../../../providers/ssh/reverse/listeners.ts";
import { systemClock } from "../../../../../src/lib/clock.ts";
import { silentLog } from "../../../../../src/lib/log.ts";
import { never } from "../../../../fakes/signals.ts";
import { freePort } from "../../../../harness/ports.ts";
import { sshKey } from "../../../../harness/ssh-keys.ts";
import { waitFor } from "../../../../harness/wait.ts";

/** A private key, and its public half as a line of authorized_keys. */
function machineKey() {
  const key = sshKey("rsa");
  const privateKey = key.privateKey.export({ type: "pkcs1", format: "pem" });
  return { privateKey, line: `ssh-rsa ${key.wire.toString("base64")}` };
}

/** A listener that is open as in a replica: for enrolments, whatever nodes run. */
async function listener(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), "graftlet-listeners-"));
  const hostKeyFile = join(directory, "listener");
  writeFileSync(hostKeyFile, machineKey().privateKey, { mode: 0o600 });
  const on = { address: "127.0.0.1", port: await freePort(), hostKeyFile };
  const parts = { clock: systemClock(), log: silentLog() };
  const listeners = createReverseListeners();
  const handler = { isValid: () => false, enrol: () => Promise.reject(new Error("unused")) };
  const open = await listeners.acceptEnrolments(on, { handler, ...parts });
  const clients: ssh2.Client[] = [];
  t.after(async () => {
    for (const client of clients) client.destroy();
    await open[Symbol.asyncDispose]();
    rmSync(directory, { recursive: true, force: true });
  });
  let changes = 0;
  return {
    open,
    changes: () => changes,
    expect: (nodeName: string) => listeners.expect(on, { nodeName, onChange: () => (changes += 1), ...parts }),
    /** The node's own use of the listener. @param keys content of its file of keys. */
    join(nodeName: string, keys: string) {
      const authorizedKeysFile = join(directory, `${nodeName}-keys`);
      writeFileSync(authorizedKeysFile, keys);
      return listeners.join({ ...on, authorizedKeysFile }, { nodeName, ...parts });
    },
    /** A machine that connects and requests its forward. It answers nothing else. @returns false if it is refused. */
    async dial(privateKey: string | Buffer) {
      const client = new ssh2.Client();
      clients.push(client);
      client.on("error", () => undefined);
      const ready = new Promise<string>((resolve) => void client.once("ready", () => resolve("ready")));
      const closed = new Promise<string>((resolve) => void client.once("close", () => resolve("closed")));
      client.on("tcp connection", (_details, accept) => void accept().on("error", () => undefined));
      client.connect({ host: "127.0.0.1", port: on.port, username: "any", privateKey });
      if ((await Promise.race([ready, closed])) === "closed") return undefined;
      client.forwardIn("127.0.0.1", 22, () => undefined);
      return { client, closed };
    },
  };
}

test("a machine is accepted before its node runs here, and the node then uses that connection", async (t) => {
  const { expect, join: joinNode, dial, changes } = await listener(t);
  const key = machineKey();
  await using machine = expect("edge-1");
  machine.setKeys(`${key.line}\n`);
  const dialled = await dial(key.privateKey);
  assert.ok(dialled);
  await waitFor("the arrival", () => machine.arrival() !== undefined, { timeoutMs: 5_000, everyMs: 10 });
  assert.equal(changes(), 1);
  const tunnel = joinNode("edge-1", key.line);
  const stream = await tunnel.open(never);
  stream.on("error", () => undefined);
  tunnel.reportHostKey(stream, false);
  assert.equal(machine.arrival(), undefined, "it leads to another machine");
  tunnel.reportHostKey(stream, true);
  stream.destroy();
  await tunnel[Symbol.asyncDispose]();
  assert.ok(machine.arrival(), "the connection outlives the node");
  const again = joinNode("edge-1", key.line);
  (await again.open(never)).on("error", () => undefined).destroy();
  await machine[Symbol.asyncDispose]();
  assert.equal(await Promise.race([dialled.closed, sleep(200, "open")]), "open", "the node uses it");
  await again[Symbol.asyncDispose]();
  assert.equal(await dialled.closed, "closed");
});

test("the connection of an expected machine that no node uses is closed when it is expected no longer", async (t) => {
  const { expect, dial } = await listener(t);
  const key = machineKey();
  const machine = expect("edge-1");
  machine.setKeys(key.line);
  const dialled = await dial(key.privateKey);
  await waitFor("the arrival", () => machine.arrival() !== undefined, { timeoutMs: 5_000, everyMs: 10 });
  await machine[Symbol.asyncDispose]();
  assert.equal(await dialled?.closed, "closed");
  assert.equal(await dial(key.privateKey), undefined);
});

test("the keys of an expected machine take precedence over the file of its node, and can be replaced", async (t) => {
  const { expect, join: joinNode, dial } = await listener(t);
  const [before, after] = [machineKey(), machineKey()];
  await using _tunnel = joinNode("edge-1", before.line);
  await using machine = expect("edge-1");
  machine.setKeys(after.line);
  assert.equal(await dial(before.privateKey), undefined);
  assert.ok(await dial(after.privateKey));
  machine.setKeys(`command="false" ${after.line}`);
  assert.equal(await dial(after.privateKey), undefined, "a key with options is refused");
});

test("a key of two expected machines is refused", async (t) => {
  const { expect, dial } = await listener(t);
  const key = machineKey();
  await using one = expect("edge-1");
  await using other = expect("edge-2");
  one.setKeys(key.line);
  other.setKeys(key.line);
  assert.equal(await dial(key.privateKey), undefined);
});
