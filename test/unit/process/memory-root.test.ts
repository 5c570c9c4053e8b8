import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "../../../src/lib/log.ts";
import { refuseMemoryRoot } from "../../../src/process/memory-root.ts";
import { TargetError } from "../../../src/seams/provider.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { fakeLink } from "../../fakes/link.ts";
import { never } from "../../fakes/signals.ts";

/** A machine whose root file system is in memory, with a data volume; or one that does not show its mounts. */
function machine({ showsMounts = true, isRemote = true } = {}) {
  const host = fakeHost({ clock: fakeClock() });
  const lines: string[] = [];
  const mounts = { "/": "rootfs", "/volume1": "btrfs", "/volume1/ram": "tmpfs" };
  for (const [path, type] of Object.entries(showsMounts ? mounts : {})) {
    host.files.put(`${path}/below`, { data: "" });
    host.files.mount(path, type);
  }
  const target = { host, ...(isRemote && { link: fakeLink() }) };
  const log = createLogger(0, { write: (line) => void lines.push(line) });
  const check = async (rootDir: string) => refuseMemoryRoot({ target, log }, { nodeName: "nas", rootDir }, never);
  return { host, lines, check };
}

test("rejects a root directory on an in-memory file system, existing or not, and names the field to set", async () => {
  const { check } = machine();
  const error = await check("/var/lib/kubelet").catch((why: unknown) => why);
  assert.ok(error instanceof TargetError);
  assert.equal(error.reason, "RootDirUnusable");
  assert.match(
    error.message,
    /^--root-dir "\/var\/lib\/kubelet" is in the target's memory \(rootfs at \/\), .*: set rootDir to a directory on a disk/,
  );
  await assert.rejects(check("/volume1/ram/kubelet"), { message: /\(tmpfs at \/volume1\/ram\)/ });
});

test("accepts a root directory on a disk, and one whose file system is not known", async () => {
  await machine().check("/volume1/graftlet/kubelet");
  await machine({ showsMounts: false }).check("/var/lib/kubelet");
});

test("does not check the root directory of a node on graftlet's own machine, just as a kubelet does not", async () => {
  await machine({ isRemote: false }).check("/var/lib/kubelet");
});

test("only warns if the node already has a root directory in memory", async () => {
  const { host, lines, check } = machine();
  const record = (node: string) =>
    host.files.put("/var/lib/kubelet/graftlet/node.json", { data: JSON.stringify({ version: 1, node, made: [] }) });
  record("nas");
  await check("/var/lib/kubelet");
  assert.match(lines.join(""), /is in the target's memory \(rootfs at \/\)/);
  record("other");
  await assert.rejects(check("/var/lib/kubelet"), { code: "failed_precondition" });
});
