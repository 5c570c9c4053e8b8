import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { PassThrough, Readable, Writable } from "node:stream";
import { after, before, describe, test } from "node:test";
import { dockerStreams } from "../../providers/docker/streams.ts";
import { AttachRequest, ExecRequest } from "../../src/gen/cri.ts";
import type { RunCommand, StreamEndpoint, TerminalSize } from "../../src/seams/runtime.ts";
import { endOutput } from "../../src/streams/remote-command.ts";
import { noSizes } from "../../src/streams/terminal-sizes.ts";
import { forgetPeak, memoryOf } from "../harness/holdings.ts";
import { waitFor } from "../harness/wait.ts";
import { type DockerUnderTest, dockerOn } from "./docker-rig-parts.ts";
import { type DockerRig, startDockerRig } from "./runtime-docker.ts";
import { type Pods, patience, podsOf } from "./runtime-pods.ts";
import { argvOf } from "../harness/argv.ts";

const mebibyte = 1 << 20;
/** Sent each way: enough to show what is lost, or kept in memory. */
const amount = 128 * mebibyte;

describe("streams of the Docker provider on a real daemon", { timeout: 300_000 }, () => {
  let rig: DockerRig;
  let docker: DockerUnderTest;
  let pods: Pods;
  let containerId: string;
  before(async () => {
    rig = await startDockerRig("docker-streams");
    docker = dockerOn(rig, "streams");
    pods = podsOf(docker);
    ({ containerId } = await pods.runOne(["sleep", "3600"]));
  });
  after(async () => {
    await pods[Symbol.asyncDispose]();
    await docker[Symbol.asyncDispose]();
    await rig[Symbol.asyncDispose]();
  });

  interface Wish {
    readonly stdin?: Readable;
    readonly stdout?: Writable;
    readonly tty?: boolean;
    readonly sizes?: AsyncIterable<TerminalSize>;
    readonly signal?: AbortSignal;
  }

  /** Runs a command as the kubelet API would for a client. */
  async function exec(argv: readonly string[], wish: Wish = {}) {
    const tty = wish.tty ?? false;
    const request = { containerId, cmd: [...argv], stdin: Boolean(wish.stdin), stdout: true, stderr: !tty, tty };
    return talk(await dockerStreams(docker.parts).exec(ExecRequest.fromPartial(request), patience()), wish);
  }

  function talk(command: StreamEndpoint | RunCommand, wish: Wish) {
    assert.ok(typeof command === "function");
    const tty = wish.tty ?? false;
    const [out, err] = [collector(), collector()];
    const stdout = wish.stdout ?? out.to;
    const streams = {
      ...(wish.stdin && { stdin: wish.stdin }),
      stdout,
      ...(!tty && { stderr: err.to }),
      tty,
      sizes: wish.sizes ?? noSizes(),
    };
    const run = async () => {
      const code = await command(streams, wish.signal ?? patience());
      await Promise.all([stdout, err.to].map(endOutput));
      return code;
    };
    return { ended: run(), stdout: out.text, stderr: err.text };
  }

  test("exec returns the exit code, and stdout separate from stderr", async () => {
    const done = await exec(["sh", "-c", "echo out; echo err >&2; exit 42"]);
    assert.deepEqual([await done.ended, done.stdout(), done.stderr()], [42, "out\n", "err\n"]);
  });

  test("exec forwards stdin and closes it at the end", async () => {
    const done = await exec(["sh", "-c", "cat; echo the end"], { stdin: Readable.from([Buffer.from("typed\n")]) });
    assert.deepEqual([await done.ended, done.stdout()], [0, "typed\nthe end\n"]);
  });

  test("reports the daemon's message as an error, not as output, if a command cannot be started", async () => {
    const done = await exec(["/no/such/program"]);
    await assert.rejects(done.ended, { message: /\/no\/such\/program.*no such file or directory/ });
    assert.equal(done.stdout() + done.stderr(), "");
    await assert.rejects(docker.runtime.execSync(containerId, ["/no/such/program"], 5, patience()), {
      message: /\/no\/such\/program.*no such file or directory/,
    });
  });

  test("reads 128 MiB from a command completely, in constant memory", async () => {
    const expected = createHash("md5");
    for (let at = 0; at < amount; at += mebibyte) expected.update(Buffer.alloc(mebibyte));
    const sum = expected.digest("hex");
    // What depends on the amount grows every time, the engine's own pools once in a while.
    const grown: number[] = [];
    for (let turn = 0; turn < 4 && grown.every((mib) => mib >= 32); turn += 1) {
      const zeros = checksum();
      forgetPeak(process.pid);
      const level = memoryOf(process.pid).now;
      const done = await exec(["head", "-c", String(amount), "/dev/zero"], { stdout: zeros.to });
      assert.equal(await done.ended, 0);
      assert.deepEqual([zeros.length(), zeros.sum()], [amount, sum]);
      grown.push(memoryOf(process.pid).peak - level);
    }
    assert.ok(Math.min(...grown) < 32, `grew each time: ${grown.map((mib) => mib.toFixed()).join(", ")} MiB`);
  });

  test("writes 128 MiB to a command completely, no faster than it reads", async () => {
    const hash = createHash("md5");
    const block = Buffer.alloc(mebibyte, "0123456789abcdef\n");
    for (let at = 0; at < amount; at += mebibyte) hash.update(block);
    function* blocks() {
      for (let at = 0; at < amount; at += mebibyte) yield block;
    }
    const done = await exec(["sh", "-c", "sleep 1; md5sum"], { stdin: Readable.from(blocks()) });
    assert.equal(await done.ended, 0);
    assert.equal(done.stdout(), `${hash.digest("hex")}  -\n`);
  });

  test("delivers the rest of the output to a slow reader after the command has ended", async () => {
    const slow = checksum(20);
    const done = await exec(["sh", "-c", "head -c 3000000 /dev/zero; printf end"], { stdout: slow.to });
    assert.equal(await done.ended, 0);
    assert.equal(slow.length(), 3_000_003);
  });

  test("resizes the terminal with the client, and passes every key to the process", async () => {
    const keys = new PassThrough();
    const given = sizesToGive();
    given.put({ width: 100, height: 40 });
    const done = await exec(["sh"], { stdin: keys, tty: true, sizes: given.sizes });
    keys.write("until [ \"$(stty size)\" = '40 100' ]; do sleep 0.1; done; echo first $((20 + 1))\n");
    await waitFor("the first size", () => done.stdout().includes("first 21"));
    given.put({ width: 132, height: 25 });
    keys.write("until [ \"$(stty size)\" = '25 132' ]; do sleep 0.1; done; echo second $((20 + 2))\n");
    await waitFor("the second size", () => done.stdout().includes("second 22"));
    keys.write("stty raw -echo; echo ready; head -c 3 | od -An -tx1; exit 6\n");
    await waitFor("raw mode", () => /ready\r?\n/.test(done.stdout()));
    keys.write("\x10\x11\x00");
    keys.write("x");
    assert.equal(await done.ended, 6);
    assert.match(done.stdout(), / 10 11 00/);
  });

  test("continues to deliver a terminal's output after its input has ended", async () => {
    const done = await exec(["sh", "-c", "sleep 0.5; echo late"], { stdin: Readable.from([]), tty: true });
    assert.equal(await done.ended, 0);
    assert.match(done.stdout(), /late/);
  });

  test("leaves a command running and releases its resources when the client disconnects; a terminal gets a hangup", async () => {
    const mark = async (name: string) =>
      (await docker.runtime.execSync(containerId, ["cat", `/tmp/${name}`], 5, patience())).exitCode;
    const openBefore = await connectionsTo(docker);
    for (const tty of [false, true]) {
      const leaves = new AbortController();
      const name = tty ? "with" : "without";
      const script = `trap 'echo > /tmp/${name}-hup; exit' HUP; echo > /tmp/${name}-begun; i=0; while [ $i -lt 20 ]; do sleep 0.1; i=$((i+1)); done; echo > /tmp/${name}-done`;
      const stdin = new PassThrough();
      const done = await exec(["sh", "-c", script], { stdin, tty, signal: leaves.signal });
      await waitFor("the command to begin", async () => (await mark(`${name}-begun`)) === 0);
      leaves.abort();
      await assert.rejects(done.ended);
    }
    await waitFor("the command without a terminal to end by itself", async () => (await mark("without-done")) === 0);
    await waitFor("the other to be hung up on", async () => (await mark("with-hup")) === 0);
    assert.deepEqual(await Promise.all(["without-hup", "with-done"].map(mark)), [1, 1]);
    await waitFor("connections to be gone", async () => (await connectionsTo(docker)) <= openBefore);
  });

  test("kills an execSync that exceeds its timeout", async () => {
    const argv = ["sh", "-c", "echo > /tmp/sync-begun; exec sleep 4711"];
    await assert.rejects(docker.runtime.execSync(containerId, argv, 1, patience()), { code: "deadline_exceeded" });
    await waitFor("the command to be gone", async () => {
      const { stdout } = await docker.runtime.execSync(containerId, ["ps", "-o", "args"], 5, patience());
      return !stdout.toString().includes("sleep 4711");
    });
  });

  test("keeps 16 MiB of an execSync's output, and lets the command continue", async () => {
    const argv = ["sh", "-c", "head -c 20000000 /dev/zero; echo said >&2; exit 3"];
    const { exitCode, stdout, stderr } = await docker.runtime.execSync(containerId, argv, 60, patience());
    assert.deepEqual([exitCode, stdout.length, stderr.toString()], [3, 16 * mebibyte, "said\n"]);
  });

  test("does not find another node's containers", async () => {
    await using other = dockerOn(rig, "other");
    await assert.rejects(other.runtime.execSync(containerId, ["true"], 5, patience()), { code: "not_found" });
    const streams = dockerStreams(other.parts);
    const request = ExecRequest.fromPartial({ containerId, cmd: ["true"], stdout: true });
    await assert.rejects(streams.exec(request, patience()), { code: "not_found" });
    await assert.rejects(streams.attach(AttachRequest.fromPartial({ containerId }), patience()), { code: "not_found" });
  });

  async function attachTo(id: string, wish: Wish = {}) {
    const command = await dockerStreams(docker.parts).attach(
      AttachRequest.fromPartial({ containerId: id, stdin: Boolean(wish.stdin), stdout: true, stderr: true }),
      patience(),
    );
    return talk(command, wish);
  }

  async function run(container: Parameters<Pods["create"]>[2]): Promise<string> {
    const config = pods.config();
    const sandboxId = await pods.run(config);
    const id = await pods.create(sandboxId, config, {
      metadata: { name: "main", attempt: 0 },
      logPath: "0.log",
      ...container,
    });
    await docker.runtime.startContainer(id, patience());
    return id;
  }

  test("attach shows output from the time of the call, and ends with the container", async () => {
    const id = await run({
      command: [
        "sh",
        "-c",
        "echo before; touch /tmp/begun; until [ -e /tmp/go ]; do echo tick; sleep 0.1; done; echo last; sleep 2",
      ],
    });
    const begun = () => docker.runtime.execSync(id, ["test", "-e", "/tmp/begun"], 5, patience());
    await waitFor("the container to have begun", async () => (await begun()).exitCode === 0);
    const done = await attachTo(id);
    await waitFor("output", () => done.stdout().includes("tick"));
    await docker.runtime.execSync(id, ["touch", "/tmp/go"], 5, patience());
    assert.equal(await done.ended, 0);
    assert.match(done.stdout(), /^(tick\n)+last\n$/);
  });

  test("closes a container's stdin when an attached client disconnects only if stdinOnce is set", async () => {
    const script = "while read -r line; do echo got $line; done; echo no more";
    const once = await run({ command: ["sh", "-c", script], stdin: true, stdinOnce: true });
    const first = await attachTo(once, { stdin: Readable.from([Buffer.from("one\n")]) });
    assert.equal(await first.ended, 0);
    assert.equal(first.stdout(), "got one\nno more\n");

    const more = await run({ command: ["sh", "-c", script], stdin: true });
    const [inputOfSecond, inputOfThird] = [new PassThrough(), new PassThrough()];
    const leaves = new AbortController();
    const second = await attachTo(more, { stdin: inputOfSecond });
    inputOfSecond.write("one\n");
    await waitFor("the answer", () => second.stdout() === "got one\n");
    const third = await attachTo(more, { stdin: inputOfThird });
    const fourth = await attachTo(more, { stdin: new PassThrough(), signal: leaves.signal });
    // Whoever has an answer is attached.
    inputOfThird.write("two\n");
    await waitFor("its answer", () => third.stdout() === "got two\n");
    inputOfSecond.end("three\n");
    assert.equal(await second.ended, 0, "its output ends with its input");
    await waitFor("another to see the next", () => third.stdout() === "got two\ngot three\n");
    leaves.abort();
    await assert.rejects(fourth.ended);
    inputOfThird.write("four\n");
    await waitFor("the process to go on", () => third.stdout() === "got two\ngot three\ngot four\n");
    await docker.runtime.stopContainer(more, 0, patience());
    assert.equal(await third.ended, 0);
  });
});

function collector() {
  const parts: Buffer[] = [];
  const to = new Writable({
    write(part: Buffer, _encoding, done) {
      parts.push(part);
      done();
    },
  });
  return { to, text: () => Buffer.concat(parts).toString() };
}

/** @param pauseMs after each piece. */
function checksum(pauseMs = 0) {
  const hash = createHash("md5");
  let length = 0;
  const to = new Writable({
    write(part: Buffer, _encoding, done) {
      hash.update(part);
      length += part.length;
      if (pauseMs === 0) done();
      else setTimeout(done, pauseMs);
    },
  });
  return { to, length: () => length, sum: () => hash.digest("hex") };
}

function sizesToGive() {
  const stream = new PassThrough({ objectMode: true });
  return { put: (size: TerminalSize) => stream.write(size), sizes: stream as AsyncIterable<TerminalSize> };
}

/** Streams that the daemon has open for us, by what it tells of its own sockets. */
async function connectionsTo({ parts }: DockerUnderTest): Promise<number> {
  const { stdout } = await parts.host.run(argvOf(["cat", "/proc/net/unix"]));
  return stdout.split("\n").filter((line) => line.endsWith(parts.config.socket)).length;
}
