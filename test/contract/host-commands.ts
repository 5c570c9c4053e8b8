import assert from "node:assert/strict";
import { test } from "node:test";
import type { Bench } from "./host.ts";
import { allOf, within } from "./waiting.ts";
import { argvOf } from "../harness/argv.ts";

/** Commands: to their end, and as streams. */
export function commandContract({ current }: Bench): void {
  test("run returns output and exit code; a failing command is a result", async () => {
    const { host } = current();
    assert.deepEqual(await host.run(argvOf(["echo", "one", "two words"])), {
      code: 0,
      stdout: "one two words\n",
      stderr: "",
      truncated: false,
    });
    assert.equal((await host.run(argvOf(["false"]))).code, 1);
  });

  test("run forwards stdin, or closes it if none is given", async () => {
    const { host } = current();
    assert.equal((await host.run(argvOf(["cat"]), { stdin: "héllo" })).stdout, "héllo");
    assert.equal((await within(host.run(argvOf(["cat"])))).stdout, "");
    assert.equal((await host.run(argvOf(["true"]), { stdin: Buffer.alloc(1_000_000) })).code, 0);
  });

  test("run keeps at most the requested amount of output", async () => {
    const { host } = current();
    const { stdout, truncated } = await host.run(argvOf(["cat"]), { stdin: "x".repeat(100_000), maxOutputBytes: 1000 });
    assert.deepEqual([stdout.length, truncated], [1000, true]);
    assert.equal((await host.run(argvOf(["cat"]), { stdin: "x".repeat(1000), maxOutputBytes: 1000 })).truncated, false);
  });

  test("run rejects a missing program, a timeout and cancellation", async () => {
    const { host } = current();
    await assert.rejects(host.run(argvOf(["no-such-program-anywhere"])), { code: "not_found" });
    await assert.rejects(within(host.run(argvOf(["sleep", "60"]), { timeoutMs: 100 })), { code: "deadline_exceeded" });
    const stop = new AbortController();
    const cut = assert.rejects(within(host.run(argvOf(["sleep", "60"]), { signal: stop.signal })), {
      code: "cancelled",
    });
    stop.abort();
    await cut;
    await assert.rejects(host.run(argvOf(["true"]), { signal: AbortSignal.abort() }), { code: "cancelled" });
  });

  test("spawn streams both ways, and returns the exit code", async () => {
    const { host } = current();
    await using cat = await host.spawn(argvOf(["cat"]));
    assert.ok(cat.pid > 0);
    const said = allOf(cat.stdout);
    cat.stdin.write("a");
    cat.stdin.end("b");
    assert.deepEqual([await within(said), await within(cat.exited)], ["ab", 0]);
    await assert.rejects(host.spawn(argvOf(["no-such-program-anywhere"])), { code: "not_found" });
  });

  test("a spawned command ends by kill, signal or disposal", async () => {
    const { host } = current();
    await using gentle = await host.spawn(argvOf(["sleep", "60"]));
    gentle.kill();
    assert.equal(await within(gentle.exited), 143);
    gentle.kill("SIGKILL");
    await using hard = await host.spawn(argvOf(["sleep", "60"]));
    hard.kill("SIGKILL");
    assert.equal(await within(hard.exited), 137);
    const stop = new AbortController();
    await using cancelled = await host.spawn(argvOf(["sleep", "60"]), stop.signal);
    stop.abort();
    assert.equal(await within(cancelled.exited), 137);
    const disposed = await host.spawn(argvOf(["sleep", "60"]));
    await within(Promise.resolve(disposed[Symbol.asyncDispose]()));
    assert.equal(await disposed.exited, 137);
  });
}
