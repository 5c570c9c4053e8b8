import assert from "node:assert/strict";
import { once } from "node:events";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { ProcessConnection } from "../../../../../providers/docker/port-forward/connection.ts";
import { startPortForwardRelay } from "../../../../../providers/docker/port-forward/relay.ts";
import type { HostProcess } from "../../../../../src/seams/host.ts";
import { fakeClock } from "../../../../fakes/clock.ts";
import { never } from "../../../../fakes/signals.ts";
import { argvOf } from "../../../../harness/argv.ts";

function fakeProcess() {
  const exited = Promise.withResolvers<number>();
  const kills: string[] = [];
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  const kill = (how = "SIGTERM") => {
    kills.push(how);
    for (const stream of [stdout, stderr]) stream.end();
    exited.resolve(137);
  };
  const process: HostProcess = {
    pid: 1,
    stdin,
    stdout,
    stderr,
    exited: exited.promise,
    kill,
    [Symbol.asyncDispose]: async () => kill("SIGKILL"),
  };
  const lose = () => exited.reject(new Error("the link is lost"));
  return { process, stdin, stdout, stderr, kills, exit: () => exited.resolve(0), lose };
}

function start(signal: AbortSignal = never) {
  const fake = fakeProcess();
  const spawn = async (_argv: readonly string[], until?: AbortSignal) => {
    until?.addEventListener("abort", () => fake.process.kill("SIGKILL"));
    return fake.process;
  };
  const host = { spawn };
  return {
    ...fake,
    started: startPortForwardRelay({ host, clock: fakeClock() }, argvOf(["relay"]), /^connected$/m, signal),
  };
}

async function turns(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate);
}

test("a relay becomes a connection once it reports that it is connected", async () => {
  const { started, stdin, stdout, stderr, kills } = start();
  stderr.write("notice\nconn");
  stdout.write("hello");
  await turns();
  stderr.write("ected\n");
  const connection = await started;
  connection.write("question");
  assert.equal(String(await once(connection, "data")), "hello");
  assert.equal(String(stdin.read()), "question");
  connection.destroy();
  assert.deepEqual(kills, ["SIGKILL"]);
});

for (const [words, message] of [
  ["Connection refused\n", "connection refused"],
  [
    "2026/01/01 00:00:00 socat[1] N opening connection\n2026/01/01 00:00:00 socat[1] E connect(5, AF=2 127.0.0.1:9, 16): Connection refused\n2026/01/01 00:00:00 socat[1] N exit(1)\n",
    "connection refused",
  ],
  ["nsenter: cannot open /proc/1/ns/net: No such file or directory\n", "no such file or directory"],
  ["", "the relay ended"],
] as const) {
  test(`a relay that ends before it is connected fails the call with the reason: ${message}`, async () => {
    const { started, stderr, kills } = start();
    stderr.end(words);
    await assert.rejects(started, { code: "unavailable", message });
    assert.deepEqual(kills, ["SIGKILL"]);
  });
}

test("kills a relay without a caller", async () => {
  const stop = new AbortController();
  const { started, kills } = start(stop.signal);
  await turns();
  stop.abort();
  await assert.rejects(started, { code: "cancelled" });
  assert.ok(kills.includes("SIGKILL"));
});

test("stops waiting for a relay that cannot be started yet", async () => {
  const stop = new AbortController();
  const spawn = (_argv: readonly string[], until?: AbortSignal) =>
    new Promise<HostProcess>((_, reject) => until?.addEventListener("abort", () => reject(new Error("given up"))));
  const started = startPortForwardRelay(
    { host: { spawn }, clock: fakeClock() },
    argvOf(["relay"]),
    /^connected$/m,
    stop.signal,
  );
  stop.abort();
  await assert.rejects(started, /given up/);
});

test("directions end independently; a process is killed if it has not exited a minute after both have ended", async () => {
  for (const endsItself of [true, false]) {
    const { process, stdin, stdout, kills, exit } = fakeProcess();
    const clock = fakeClock();
    const connection = new ProcessConnection(process, clock);
    stdout.end("all I have to say");
    connection.resume();
    await turns();
    assert.ok(connection.readableEnded);
    assert.ok(!connection.destroyed);
    connection.end("and I");
    assert.equal(String(stdin.read()), "and I");
    await turns();
    assert.ok(stdin.writableFinished);
    assert.ok(connection.destroyed);
    assert.deepEqual(kills, []);
    if (endsItself) exit();
    await clock.advance(120_000);
    assert.deepEqual(kills, endsItself ? [] : ["SIGKILL"]);
  }
});

test("stops waiting for a process on a lost machine, without an unhandled error", async () => {
  const { process, stdout, kills, lose } = fakeProcess();
  const clock = fakeClock();
  const connection = new ProcessConnection(process, clock);
  stdout.end("bye");
  connection.resume();
  connection.end();
  await turns();
  assert.ok(connection.destroyed);
  lose();
  await turns();
  await clock.advance(120_000);
  assert.deepEqual(kills, []);
});

test("drops input after a process has closed it, and keeps its last output", async () => {
  const { process, stdin, stdout } = fakeProcess();
  const connection = new ProcessConnection(process, fakeClock());
  stdin.destroy(new Error("EPIPE"));
  await turns();
  connection.write("nobody reads this");
  stdout.end("bye");
  const said: string[] = [];
  connection.on("data", (part: Buffer) => said.push(part.toString()));
  await turns();
  assert.deepEqual(said, ["bye"]);
  assert.ok(connection.readableEnded);
});

test("backpressure: a slow reader blocks the process", async () => {
  const { process, stdout } = fakeProcess();
  const connection = new ProcessConnection(process, fakeClock());
  let room = true;
  let written = 0;
  connection.read(0);
  for (let turn = 0; turn < 1000 && room; turn++) {
    room = stdout.write(Buffer.alloc(10_000));
    written += 10_000;
    await turns();
  }
  assert.ok(!room, `took ${written} bytes`);
  connection.destroy();
});
