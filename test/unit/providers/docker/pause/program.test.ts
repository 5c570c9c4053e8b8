import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { assemble, jump, label, pauseProgram } from "../../../../../providers/docker/pause/program.ts";
import { tarOfProgram } from "../../../../../providers/docker/pause/image.ts";

/** Output of GNU as for the same instructions; each architecture checks both programs. */
const codes = {
  amd64:
    "6802400100b80e00000031ff4889e631d241ba080000000f05b8800000004889e731f631d241ba080000000f0583f811740d85c078e3" +
    "b8e700000031ff0f05b83d00000048c7c7ffffffff31f6ba010000004531d20f0585c07fe4ebbc",
  arm64:
    "490088d22900a0f2e90f1ff8e81080d2000080d2e1030091020080d2030180d2010000d4281180d2e0030091010080d2020080d2030180d2" +
    "010000d41f440071a000005400ffff37c80b80d2000080d2010000d4882080d200008092010080d2220080d2030080d2010000d41f000071" +
    "2cffff54ecffff17",
} as const;

test("each program consists of an ELF header and the expected instructions", () => {
  for (const machine of ["amd64", "arm64"] as const) {
    const program = pauseProgram(machine);
    assert.equal(program.subarray(176).toString("hex"), codes[machine]);
    assert.equal(program.readUInt16LE(18), machine === "amd64" ? 62 : 183);
    assert.equal(program.readBigUInt64LE(24), 0x400000n + 176n);
    assert.equal(program.readBigUInt64LE(64 + 32), BigInt(program.length));
  }
});

const machine = process.arch === "arm64" ? "arm64" : process.arch === "x64" ? "amd64" : undefined;
const skip = process.platform !== "linux" || machine === undefined;

/** A field of /proc/PID/status. */
function statusOf(pid: number | undefined, field: string): string {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return new RegExp(`^${field}:\\s*(\\S+)`, "m").exec(status)?.[1] ?? "";
}

test("the program for this machine waits, and exits with 0 on a signal", { skip }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-pause-"));
  try {
    const file = join(folder, "pause");
    writeFileSync(file, pauseProgram(machine ?? "amd64"), { mode: 0o755 });
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      const running = spawn(file, { stdio: "ignore" });
      const exited = once(running, "exit");
      await once(running, "spawn");
      // Node reports the start before the program itself has run; afterwards it sleeps.
      while (statusOf(running.pid, "State") !== "S") await new Promise(setImmediate);
      running.kill("SIGCHLD");
      while (!/^0+$/.test(statusOf(running.pid, "ShdPnd"))) await new Promise(setImmediate);
      running.kill(signal);
      assert.deepEqual(await exited, [0, null]);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("tar can read the archive with the pause program", () => {
  const data = Buffer.alloc(700, "x");
  const archive = tarOfProgram("pause", data);
  assert.equal(archive.length % 512, 0);
  const listed = execFileSync("tar", ["-tv", "--numeric-owner", "--utc"], { input: archive, encoding: "utf8" });
  assert.match(listed, /^-rwxr-xr-x 0\/0 +700 1970-01-01 00:00 pause\n$/);
  assert.deepEqual(execFileSync("tar", ["-xO"], { input: archive }), data);
});

test("rejects a jump to an unknown label", () => {
  const there = jump("there", 1, (distance) => [distance]);
  assert.deepEqual([...assemble([there, Uint8Array.of(7), label("there")])], [2, 7]);
  assert.throws(() => assemble([there]), /unknown label/);
});
