import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { appendFile, readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { disk } from "./disk.ts";
import { ended, following, line, losable, turns } from "./following.ts";

/** Compresses a rotated log like a later rotation, keeping its time. */
async function compress(path: string): Promise<void> {
  const { atime, mtime } = await stat(path);
  await writeFile(`${path}.gz`, gzipSync(await readFile(path)));
  await utimes(`${path}.gz`, atime, mtime);
  await rm(path);
}

test("if several rotations behind, reads every file in turn, even compressed ones", async () => {
  await using on = await disk();
  const rotated = (second: number) => `${on.log}.20260101-00000${second}`;
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  await appendFile(on.log, line("two"));
  await rename(on.log, rotated(0));
  await writeFile(rotated(1), line("three"));
  await writeFile(rotated(2), line("four"));
  for (const second of [1, 2]) await compress(rotated(second));
  await writeFile(on.log, line("five"));
  await reading.until("one\ntwo\nthree\nfour\nfive\n");
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("after compression, recognizes the file it was reading by its time, or by its name if already rotated", async () => {
  await using on = await disk();
  const rotated = (second: number) => `${on.log}.20260101-00000${second}`;
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  await appendFile(on.log, line("two"));
  await utimes(on.log, 1000, 1000);
  await rename(on.log, rotated(3));
  const others = { [rotated(2)]: ["old", 900], [rotated(4)]: ["three", 1100], [rotated(5)]: ["four", 1100] } as const;
  for (const [path, [text, seconds]] of Object.entries(others)) {
    await writeFile(path, line(text));
    await utimes(path, seconds, seconds);
  }
  for (const second of [2, 3, 4, 5]) await compress(rotated(second));
  await writeFile(on.log, line("five"));
  await reading.until("one\ntwo\nthree\nfour\nfive\n");
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("fails on a compressed file that is not gzip", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  await rename(on.log, `${on.log}.20260101-000000`);
  await writeFile(`${on.log}.20260101-000001.gz`, line("no gzip"));
  await writeFile(on.log, line("two"));
  await assert.rejects(ended(reading), /cannot decompress: incorrect header check/);
  assert.equal(on.openFiles(), 0);
});

test("resumes in a compressed file after the connection to the target was lost", async () => {
  await using on = await disk();
  const rotated = (second: number) => `${on.log}.20260101-00000${second}`;
  await writeFile(on.log, line("one"));
  const target = losable(on);
  const reading = following(on, target.host);
  await reading.until("one\n");
  await rename(on.log, rotated(0));
  const texts = Array.from({ length: 40_000 }, (_, at) => randomBytes(20).toString("hex") + at);
  await writeFile(rotated(1), texts.map(line).join(""));
  await compress(rotated(1));
  await writeFile(on.log, line("two"));
  const parts = () => reading.text().split("\n").length;
  await turns(reading.clock, () => parts() > 1_000);
  target.lose();
  for (let turn = 0; turn < 100; turn += 1) await reading.clock.advance(0);
  target.find();
  await reading.until(`one\n${texts.join("\n")}\ntwo\n`);
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});
