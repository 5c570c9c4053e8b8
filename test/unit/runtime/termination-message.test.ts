import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { systemClock } from "../../../src/lib/clock.ts";
import { localHost } from "../../../providers/local/host.ts";
import { ContainerState, ContainerStatus } from "../../../src/gen/cri.ts";
import type { LogReader } from "../../../src/pipeline.ts";
import { readTerminationMessage } from "../../../src/runtime/termination-message.ts";

const { signal } = new AbortController();
let root = "";
before(async () => void (root = await mkdtemp(join(tmpdir(), "graftlet-message-"))));
after(() => rm(root, { recursive: true }));

/** A log of this text, delivered in small chunks. */
function logOf(text: string): LogReader {
  return {
    async read(_container, options, out) {
      assert.deepEqual([options.tailLines, options.follow, options.timestamps], [80, false, false]);
      for (let at = 0; at < text.length; at += 100)
        await new Promise((done) => out.write(Buffer.from(text.slice(at, at + 100)), done));
    },
  };
}

function ended(hostPath: string, more: Partial<ContainerStatus> = {}, policy = "File"): ContainerStatus {
  return ContainerStatus.fromPartial({
    state: ContainerState.CONTAINER_EXITED,
    exitCode: 1,
    reason: "Error",
    annotations: {
      "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
      "io.kubernetes.container.terminationMessagePolicy": policy,
    },
    mounts: [{ containerPath: "/dev/termination-log", hostPath }],
    ...more,
  });
}

async function read(status: ContainerStatus, log = "from the log"): Promise<string> {
  return readTerminationMessage({ fs: localHost({ clock: systemClock() }).fs, logs: logOf(log) }, status, signal);
}

async function file(name: string, text: string): Promise<string> {
  const path = join(root, name);
  await writeFile(path, text);
  return path;
}

describe("a termination message", () => {
  it("a termination message has the runtime's message, then the container's", async () => {
    const path = await file("said", "out of coffee");
    assert.equal(await read(ended(path)), "out of coffee");
    assert.equal(await read(ended(path, { message: "oops" })), "oops: out of coffee");
  });
  it("a termination message contains only the end of a long file", async () => {
    assert.equal(await read(ended(await file("long", `${"x".repeat(5000)}end`))), `${"x".repeat(4093)}end`);
  });
  it("a termination message has only the runtime's message if there is no file, none is configured, or the container runs", async () => {
    const path = await file("unread", "text");
    assert.equal(await read(ended(join(root, "none"), { message: "oops" })), "oops");
    assert.equal(await read(ended(path, { mounts: [] })), "");
    assert.equal(await read(ended(path, { annotations: {} })), "");
    assert.equal(await read(ended(path, { state: ContainerState.CONTAINER_RUNNING })), "");
  });
  it("falls back to the end of the log if the container failed without a message and the spec says so", async () => {
    const empty = await file("empty", "");
    const policy = "FallbackToLogsOnError";
    assert.equal(await read(ended(empty, {}, policy)), "from the log");
    assert.equal(await read(ended(join(root, "none"), {}, policy)), "from the log");
    assert.equal(await read(ended(empty, {}, policy), "y".repeat(3000)), "y".repeat(2048));
    assert.equal(await read(ended(empty)), "");
    assert.equal(await read(ended(empty, { exitCode: 0 }, policy)), "");
    assert.equal(await read(ended(empty, { reason: "ContainerCannotRun" }, policy)), "");
    assert.equal(await read(ended(await file("spoke", "said"), {}, policy)), "said");
  });
  it("reports a log that cannot be read", async () => {
    const logs: LogReader = { read: () => Promise.reject(new Error("no log")) };
    const status = ended(await file("silent", ""), {}, "FallbackToLogsOnError");
    assert.equal(
      await readTerminationMessage({ fs: localHost({ clock: systemClock() }).fs, logs }, status, signal),
      "Error on reading termination message from logs: no log",
    );
  });
  it("a termination message never follows a link, waits for a pipe or reads a directory", async () => {
    const secret = await file("secret", "hunter2");
    const [link, fifo, directory] = ["link", "fifo", "directory"].map((name) => join(root, name)) as [
      string,
      string,
      string,
    ];
    await symlink(secret, link);
    execFileSync("mkfifo", [fifo]);
    await mkdir(directory);
    for (const path of [link, fifo, directory]) {
      const message = await read(ended(path));
      assert.ok(message.startsWith(`Error on reading termination log ${path}: `), message);
      assert.doesNotMatch(message, /hunter2/);
    }
  });
  it("a termination message is not invented when the caller aborts", async () => {
    const stopped = AbortSignal.abort();
    await assert.rejects(
      readTerminationMessage(
        { fs: localHost({ clock: systemClock() }).fs, logs: logOf("") },
        ended(await file("late", "x")),
        stopped,
      ),
    );
  });
});
