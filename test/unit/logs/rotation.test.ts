import assert from "node:assert/strict";
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  statSync,
  symlinkSync,
  utimesSync,
} from "node:fs";
import { mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { localHost } from "../../../providers/local/host.ts";
import { ContainerState, ContainerStatus } from "../../../src/gen/cri.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger } from "../../../src/lib/log.ts";
import { createLogRotation } from "../../../src/logs/rotation.ts";
import type { RunOptions } from "../../../src/seams/host.ts";
import { argvOf } from "../../harness/argv.ts";

const clock = systemClock();
const maxSizeBytes = 100;
const full = "x".repeat(maxSizeBytes);
const runningNow = ContainerState.CONTAINER_RUNNING;
/** Name of a rotated file without its time. */
const nameless = (name: string) => name.replace(/\d{8}-\d{6}/, "TIME");

/** Containers with local logs, and a runtime that opens a new log on request. */
async function world(names: readonly string[] = ["c"], isNear = false) {
  const podLogsDir = await mkdtemp(join(tmpdir(), "graftlet-rotation-"));
  const logs = new Map(names.map((name) => [name, join(podLogsDir, "ns_pod_uid", name, "0.log")] as const));
  for (const name of names) mkdirSync(join(podLogsDir, "ns_pod_uid", name), { recursive: true });
  const log = (name = "c") => logs.get(name) ?? assert.fail(name);
  const said: string[] = [];
  const reopened: string[] = [];
  const ran: string[] = [];
  const state = { fails: undefined as CodedError | undefined, begins: true, containers: names };
  const host = localHost({ clock });
  const { lstatAll: _, ...far } = host.fs;
  const deps = {
    host: {
      fs: isNear ? host.fs : far,
      run: (argv: readonly string[], options?: RunOptions) => {
        ran.push(argv[2] ?? "");
        return host.run(argvOf(argv), options);
      },
    },
    runtime: {
      async reopenContainerLog(id: string) {
        reopened.push(id);
        if (state.begins) appendFileSync(log(id), "");
        if (state.fails) throw state.fails;
      },
    },
    podCache: {
      list: () => [
        {
          uid: "uid",
          name: "pod",
          namespace: "ns",
          sandboxes: [],
          ips: [],
          sandboxOf: new Map(),
          observedAt: 0,
          containers: state.containers.map((id) =>
            ContainerStatus.fromPartial({ id, logPath: log(id), state: runningNow }),
          ),
        },
      ],
    },
    clock,
    log: createLogger(0, { write: (text: string) => said.push(text) }),
  };
  /** One round. */
  const round = async (settings: { maxFiles?: number; workers?: number } = {}) => {
    const stop = new AbortController();
    const sleeping = { ...clock, sleep: async () => stop.abort() };
    const given = { maxSizeBytes, maxFiles: 5, workers: 1, intervalMs: 1, podLogsDir, ...settings };
    await createLogRotation({ ...deps, waitForTarget: undefined, clock: sleeping, settings: given }).run(stop.signal);
  };
  return {
    state,
    said,
    reopened,
    ran,
    round,
    log,
    files: (name = "c") => readdirSync(join(podLogsDir, "ns_pod_uid", name)).toSorted(),
    [Symbol.asyncDispose]: () => rm(podLogsDir, { recursive: true }),
  };
}

/** Creates rotated files of a log, oldest first. */
async function rotatedBefore(log: string, ...suffixes: readonly string[]): Promise<void> {
  for (const [second, suffix] of suffixes.entries())
    await writeFile(`${log}.20260101-00000${second}${suffix}`, `${second}`);
}

test("rotates a log that has reached the limit, but not a smaller one; reads all sizes at once", async () => {
  await using at = await world(["full", "small"]);
  await writeFile(at.log("full"), full);
  await writeFile(at.log("small"), full.slice(1));
  await at.round();
  assert.deepEqual(at.files("full").map(nameless), ["0.log", "0.log.TIME"]);
  assert.equal(statSync(at.log("full")).size, 0);
  assert.deepEqual(at.files("small"), ["0.log"]);
  assert.deepEqual(at.reopened, ["full"]);
  assert.equal(at.ran.filter((script) => script.includes("stat")).length, 1);
  assert.deepEqual(at.said, []);
});

test("reads sizes on the local machine without running commands", async () => {
  await using at = await world(["full", "small", "gone"], true);
  await writeFile(at.log("full"), full);
  await writeFile(at.log("small"), full.slice(1));
  await at.round();
  assert.deepEqual(at.files("full").map(nameless), ["0.log", "0.log.TIME"]);
  assert.deepEqual(at.files("small"), ["0.log"]);
  assert.deepEqual(at.reopened.toSorted(), ["full", "gone"]);
  assert.equal(at.ran.filter((script) => script.includes("stat")).length, 0);
});

test("compresses older logs and keeps their mode; removes leftovers and logs over the limit", async () => {
  await using at = await world();
  await writeFile(at.log(), full);
  await rotatedBefore(at.log(), ".gz", ".gz", "", ".tmp");
  const uncompressed = `${at.log()}.20260101-000002`;
  chmodSync(uncompressed, 0o640);
  utimesSync(uncompressed, 1000, 1000);
  await at.round({ maxFiles: 4 });
  const [log, second, third, rotated] = at.files();
  assert.deepEqual([log, second, third], ["0.log", "0.log.20260101-000001.gz", "0.log.20260101-000002.gz"]);
  assert.equal(nameless(rotated ?? ""), "0.log.TIME");
  assert.equal(gunzipSync(await readFile(`${uncompressed}.gz`)).toString(), "2");
  const { mode, mtimeMs } = statSync(`${uncompressed}.gz`);
  assert.deepEqual([mode & 0o777, mtimeMs], [0o640, 1_000_000]);
});

test("undoes the rename if the runtime fails to reopen the log, unless a new log exists", async () => {
  await using at = await world();
  await writeFile(at.log(), full);
  at.state.fails = new CodedError("unknown", "no");
  at.state.begins = false;
  await at.round();
  assert.deepEqual(at.files(), ["0.log"]);
  assert.match(at.said.join(""), /cannot rotate container log; retrying/);
  at.state.begins = true;
  await at.round();
  assert.deepEqual(at.files().map(nameless), ["0.log", "0.log.TIME"]);
});

test("recovers from an interrupted rotation by reopening a missing log", async () => {
  await using at = await world();
  await writeFile(at.log(), full);
  await rename(at.log(), `${at.log()}.20260101-000000`);
  await at.round();
  assert.deepEqual(at.files(), ["0.log", "0.log.20260101-000000"]);
  assert.deepEqual(at.reopened, ["c"]);
});

test("restarts an interrupted compression, and finishes one that was complete", async () => {
  await using at = await world();
  await rotatedBefore(at.log(), "", "");
  const [half, whole] = [0, 1].map((second) => `${at.log()}.20260101-00000${second}`);
  await writeFile(`${half}.tmp`, "par");
  await writeFile(`${whole}.gz`, "compressed");
  await writeFile(at.log(), full);
  await at.round();
  assert.deepEqual(at.files().map(nameless).toSorted(), ["0.log", "0.log.TIME", "0.log.TIME.gz", "0.log.TIME.gz"]);
  assert.equal(gunzipSync(await readFile(`${half}.gz`)).toString(), "0");
});

test("defers a second rotation within the same second", async () => {
  await using at = await world();
  const rounds = 12;
  for (let round = 0; round < rounds; round++) {
    appendFileSync(at.log(), full);
    await at.round({ maxFiles: 50 });
  }
  const kept = at.files().map((name) => readFile(join(at.log(), "..", name)).then((bytes) => [name, bytes] as const));
  const texts = (await Promise.all(kept)).map(([name, bytes]) => (name.endsWith(".gz") ? gunzipSync(bytes) : bytes));
  assert.equal(
    texts.reduce((sum, text) => sum + text.length, 0),
    rounds * full.length,
  );
  assert.ok(at.reopened.length < rounds, "no two rounds in one second");
});

test("if a container ends during the rotation, restores its log's name without a warning", async () => {
  await using at = await world();
  await writeFile(at.log(), full);
  at.state.begins = false;
  at.state.fails = new CodedError("unknown", "container is not running");
  const { containers } = at.state;
  Object.defineProperty(at.state, "containers", { get: () => (at.reopened.length > 0 ? [] : containers) });
  await at.round();
  assert.deepEqual(at.files(), ["0.log"]);
  assert.deepEqual(at.said, []);
});

test("does not touch a log that is a symbolic link, and does not check it again", async () => {
  await using at = await world();
  const elsewhere = join(at.log(), "..", "elsewhere");
  await writeFile(elsewhere, full);
  symlinkSync(elsewhere, at.log());
  await at.round();
  assert.deepEqual(at.files(), ["0.log", "elsewhere"]);
  assert.deepEqual(at.reopened, []);
});

test("does not follow or compress a link planted next to the log", async () => {
  await using at = await world();
  await writeFile(at.log(), full);
  const secret = join(at.log(), "..", "..", "secret");
  await writeFile(secret, "secret");
  symlinkSync(secret, `${at.log()}.20260101-000000`);
  await at.round();
  assert.equal(existsSync(`${at.log()}.20260101-000000.gz`), false);
});

test("without gzip, keeps rotated logs uncompressed, and logs that once", async () => {
  await using at = await world();
  const path = process.env["PATH"];
  const programs = await mkdtemp(join(tmpdir(), "graftlet-rotation-"));
  try {
    for (const name of ["sh", "stat", "xargs", "date", "mv"]) symlinkSync(`/usr/bin/${name}`, join(programs, name));
    process.env["PATH"] = programs;
    await rotatedBefore(at.log(), "", "");
    await writeFile(at.log(), full);
    await at.round();
  } finally {
    process.env["PATH"] = path;
    await rm(programs, { recursive: true });
  }
  assert.deepEqual(at.files().map(nameless), ["0.log", "0.log.TIME", "0.log.TIME", "0.log.TIME"]);
  assert.equal(at.said.join("").split("gzip not found on the target").length, 2);
});

test("ignores log paths outside of pod log directories", async () => {
  await using at = await world(["..", "a b"]);
  await at.round();
  assert.deepEqual([at.reopened, at.ran], [[], []]);
});
