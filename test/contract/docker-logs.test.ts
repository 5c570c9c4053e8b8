import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { after, before, describe, test } from "node:test";
import { ContainerState } from "../../src/gen/cri.ts";
import { CodedError } from "../../src/lib/errors.ts";
import type { LogOptions } from "../../src/pipeline.ts";
import type { LogReaderDeps } from "../../src/logs/follow.ts";
import { createLogReader } from "../../src/logs/reader.ts";
import { type DockerUnderTest, dockerOn } from "./docker-rig-parts.ts";
import { type DockerRig, startDockerRig } from "./runtime-docker.ts";
import { type Pods, patience, podsOf } from "./runtime-pods.ts";
import { argvOf } from "../harness/argv.ts";

const plain: LogOptions = { follow: false, timestamps: false, previous: false, stream: "All" };
const longLine = 40_000;

describe("logs of the Docker provider on a real daemon", { timeout: 300_000 }, () => {
  let rig: DockerRig;
  let docker: DockerUnderTest;
  let pods: Pods;
  before(async () => {
    rig = await startDockerRig("docker-logs");
    docker = dockerOn(rig, "logs", { maxSizeBytes: 256 << 10, maxFiles: 3 });
    pods = podsOf(docker);
  });
  after(async () => {
    await pods[Symbol.asyncDispose]();
    await docker[Symbol.asyncDispose]();
    await rig[Symbol.asyncDispose]();
  });

  async function run(script: string, tty = false): Promise<string> {
    const config = pods.config();
    const sandboxId = await pods.run(config);
    const id = await pods.create(sandboxId, config, {
      metadata: { name: "main", attempt: 0 },
      command: ["sh", "-c", script],
      logPath: "main/0.log",
      tty,
    });
    await docker.runtime.startContainer(id, patience());
    return id;
  }

  /** What the log reader gives, from the file or, where that is out of reach, from the daemon. */
  async function read(containerId: string, options: Partial<LogOptions>, by: "file" | "daemon"): Promise<string> {
    const { runtime, parts } = docker;
    const { fs } = parts.host;
    const refuse = () => Promise.reject(new CodedError("permission_denied", "not for you"));
    const host: LogReaderDeps["host"] = { fs: { ...fs, open: by === "file" ? fs.open : refuse } };
    const unused = () => assert.fail("the file could have been read");
    const { status } = await runtime.containerStatus(containerId, patience());
    const reader = createLogReader({
      host,
      clock: parts.clock,
      log: parts.log,
      roots: [rig.layout.podLogs],
      runtime: by === "file" ? { ...runtime, logs: unused } : runtime,
      isRunning: async (id, signal) =>
        (await runtime.containerStatus(id, signal)).status?.state === ContainerState.CONTAINER_RUNNING,
    });
    const said: Buffer[] = [];
    const out = new Writable({
      write(part: Buffer, _encoding, done) {
        said.push(part);
        done();
      },
    });
    await reader.read({ containerId, logPath: status?.logPath ?? "" }, { ...plain, ...options }, out, patience());
    return Buffer.concat(said).toString();
  }

  const script = [
    "echo one; echo aside >&2; sleep 0.1",
    `head -c ${longLine} /dev/zero | tr '\\0' x; echo; sleep 0.1`,
    "echo grüße; printf '\\n'; sleep 1.1; echo late; printf 'no end'",
  ].join("; ");

  for (const tty of [false, true]) {
    test(`reads the same from the file and the daemon, ${tty ? "with" : "without"} a terminal`, async () => {
      const id = await run(script, tty);
      await pods.until(id, ContainerState.CONTAINER_EXITED);
      const all = await read(id, {}, "file");
      const end = tty ? "\r\n" : "\n";
      assert.equal(all.split("\n").length, 7);
      assert.ok(all.includes(`${"x".repeat(longLine)}${end}grüße${end}${end}late${end}no end`), all.slice(-200));
      const [, late = ""] = /^(\S+) late/m.exec(await read(id, { timestamps: true }, "file")) ?? [];
      const wishes: Partial<LogOptions>[] = [
        {},
        { timestamps: true },
        { follow: true },
        { follow: true, tailLines: 2 },
        { tailLines: 0 },
        { tailLines: 1 },
        { tailLines: 4, timestamps: true },
        { limitBytes: 10 },
        { limitBytes: 20_000 },
        { stream: "Stderr" },
        { stream: "Stdout", timestamps: true },
        { since: Date.parse(late) },
        { since: Date.parse(late) + 1000 },
      ];
      for (const wish of wishes)
        assert.equal(await read(id, wish, "daemon"), await read(id, wish, "file"), JSON.stringify(wish));
      assert.match(await read(id, { since: Date.parse(late) }, "daemon"), /^late\r?\nno end/);
    });
  }

  test("follows a log across rotations and shows each line once", async () => {
    const lines = 12_000;
    const id = await run(
      `i=0; while [ $i -lt ${lines} ]; do echo "line $i"; i=$((i+1)); [ $((i % 100)) != 0 ] || sleep 0.03; done; sleep 1`,
    );
    const expected = Array.from({ length: lines }, (_, index) => `line ${index}\n`).join("");
    const [byFile, byDaemon] = await Promise.all([
      read(id, { follow: true }, "file"),
      read(id, { follow: true }, "daemon"),
    ]);
    assert.ok(byFile === expected, `${byFile.length} of ${expected.length} bytes from the file`);
    assert.ok(byDaemon === expected, `${byDaemon.length} of ${expected.length} bytes from the daemon`);
    const { stdout } = await rig.docker(["inspect", "--format", "{{.LogPath}}", id]);
    const { stdout: files } = await docker.parts.host.run(argvOf(["sh", "-c", `ls ${stdout.trim()}*`]));
    assert.ok(files.trim().split("\n").length > 1, "the daemon has rotated");
  });

  test("finds no log for an unknown container or another node's container", async () => {
    const id = await run("echo mine");
    const lines = (from: DockerUnderTest, which: string) => from.runtime.logs?.(which, { follow: false }, patience());
    await using other = dockerOn(rig, "other");
    await assert.rejects(Array.fromAsync(lines(other, id) ?? []), { code: "not_found" });
    await assert.rejects(Array.fromAsync(lines(docker, "0".repeat(64)) ?? []), { code: "not_found" });
  });

  test("stops following when the reader is gone", async () => {
    const id = await run("yes 0123456789abcdef | head -c 200000; sleep 3600");
    const stop = new AbortController();
    const seen: string[] = [];
    const reading = (async () => {
      for await (const { text } of docker.runtime.logs?.(id, { follow: true }, stop.signal) ?? []) {
        seen.push(text.toString());
        stop.abort();
      }
    })();
    await assert.rejects(reading, { code: "cancelled" });
    assert.equal(seen[0], "0123456789abcdef\n");
  });
});
