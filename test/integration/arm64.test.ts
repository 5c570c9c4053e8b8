import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { pauseProgram } from "../../providers/docker/pause/program.ts";
import { fetchNode } from "../../tools/release/node-package.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { must, start } from "../harness/processes.ts";
import { foreignLibraries } from "../machines/debian.ts";

const project = join(import.meta.dirname, "..", "..");
const say = (line: string): void => console.error(line);

// An emulator of the processor alone runs the programs of a release: the kernel, the runtime and the pods are this machine's.
describe("graftlet on an arm64 processor, emulated", { timeout: 600_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-arm64-"));
  let emulator: readonly string[];
  let lab: Lab;

  before(async () => {
    await must([join(project, "test/cluster/install-packages.sh"), "qemu-user-static"], { timeoutMs: 300_000 });
    const libraries = await foreignLibraries("arm64", ["libc6", "libstdc++6", "libgcc-s1", "libatomic1"], say);
    emulator = process.arch === "arm64" ? [] : ["qemu-aarch64-static", "-L", libraries];
    const node = join(folder, "node");
    writeFileSync(node, (await fetchNode("arm64")).program, { mode: 0o755 });
    lab = await startLab("arm64", { node: [...emulator, node] });
  });
  after(async () => {
    await lab?.[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  });

  test("a node becomes Ready, runs a pod to its end, and serves its logs and exec", async () => {
    const { agent, cluster, pods } = lab;
    if (emulator[0] !== undefined) assert.equal(basename(readlinkSync(`/proc/${agent.pid}/exe`)), emulator[0]);
    await pods.create("greets", {
      containers: [{ command: ["sh", "-c", "echo hello; trap 'exit 3' TERM; sleep 60 & wait"] }],
    });
    await pods.ready("greets");
    assert.equal(await cluster.mustKubectl(["logs", "greets"]), "hello\n");
    assert.equal(await cluster.mustKubectl(["exec", "greets", "--", "echo", "there"]), "there\n");
    await cluster.mustKubectl(["delete", "pod", "greets", "--timeout=60s"]);
  });

  test("the program of Docker's sandboxes waits, and ends with code 0 on a signal", async () => {
    const file = join(folder, "pause");
    writeFileSync(file, pauseProgram("arm64"), { mode: 0o755 });
    const running = start([...emulator, file]);
    const exited = once(running, "exit");
    await sleep(1_000);
    assert.equal(running.exitCode, null);
    running.kill("SIGTERM");
    assert.deepEqual(await exited, [0, null]);
  });
});
