import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { readLines } from "../../../src/host/command-lines.ts";
import { spokenProcess } from "../../fakes/process.ts";
import { never } from "../../fakes/signals.ts";

function reading(maxLineBytes?: number, heard?: (line: string) => void) {
  const program = spokenProcess();
  const lines: string[] = [];
  const said = readLines(program.process, heard ?? ((line) => void lines.push(line)), never, maxLineBytes);
  said.catch(() => undefined);
  return { ...program, lines, said };
}

test("emits whole lines regardless of how they are split into chunks, and returns standard error", async () => {
  const { stdout, lines, said, end } = reading();
  for (const byte of Buffer.from("one\n\nzwölf\nrest")) stdout.write(Buffer.from([byte]));
  end("  why\n");
  assert.equal(await said, "why");
  assert.deepEqual(lines, ["one", "", "zwölf"]);
});

test("fails on a line over the limit, and ends the command", async () => {
  const { stdout, lines, said } = reading(100);
  stdout.write(`${"x".repeat(100)}\n`);
  stdout.write("y".repeat(60));
  await turn();
  stdout.write("y".repeat(60));
  await assert.rejects(said, { code: "resource_exhausted", message: /more than 100 bytes/ });
  assert.equal(lines.length, 1);
  assert.ok(stdout.destroyed);
});

test("keeps at most 4 KiB of standard error", async () => {
  const { process, said, end } = reading();
  const { stderr } = process as unknown as { readonly stderr: NodeJS.WritableStream };
  for (let n = 0; n < 100; n++) stderr.write("x".repeat(1_000));
  end();
  assert.equal((await said).length, 4_096);
});

test("fails with the error thrown by its listener", async () => {
  const { stdout, said } = reading(undefined, () => {
    throw new Error("not understood");
  });
  stdout.write("a\nb\n");
  await assert.rejects(said, /not understood/);
});
