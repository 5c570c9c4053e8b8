import assert from "node:assert/strict";
import { appendFile, rename, rm, truncate, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import type { LogHost } from "../../../src/logs/log-file.ts";
import { disk } from "./disk.ts";
import { ended, following, line, losable, turns } from "./following.ts";

test("streams appended lines until the container is gone", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  await appendFile(on.log, `${line("two")}2026-01-01T00:00:01Z stdout F thr`);
  await reading.until("one\ntwo\n");
  await appendFile(on.log, "ee\n");
  await reading.until("one\ntwo\nthree\n");
  reading.set(false);
  await appendFile(on.log, line("last words"));
  await ended(reading);
  assert.equal(reading.text(), "one\ntwo\nthree\nlast words\n");
  assert.equal(on.openFiles(), 0);
});

test("loses no lines of the old file when the log is rotated", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  await rename(on.log, `${on.log}.20260101-000000`);
  await appendFile(`${on.log}.20260101-000000`, line("two"));
  await writeFile(on.log, line("three"));
  await reading.until("one\ntwo\nthree\n");
  await rename(on.log, `${on.log}.20260101-000001`);
  await writeFile(on.log, line("four"));
  await reading.until("one\ntwo\nthree\nfour\n");
  assert.ok(on.openFiles() <= 2, `${on.openFiles()} files open`);
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("if several rotations behind in a log that Docker rotates, reads every file in turn", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  await appendFile(on.log, line("two"));
  await rename(on.log, `${on.log}.2`);
  await writeFile(`${on.log}.1`, line("three"));
  await writeFile(on.log, line("four"));
  await reading.until("one\ntwo\nthree\nfour\n");
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("does not confuse a file that is rotated while it is being opened with another file", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  let moved = false;
  const open: LogHost["fs"]["open"] = async (path, options) => {
    if (path === `${on.log}.1` && !moved) {
      moved = true;
      await rename(on.log, `${on.log}.3`);
      for (const [from, to] of [
        [2, 4],
        [1, 2],
      ] as const)
        await rename(`${on.log}.${from}`, `${on.log}.${to}`);
      await rename(`${on.log}.3`, `${on.log}.1`);
      await rename(`${on.log}.4`, `${on.log}.3`);
      await writeFile(on.log, line("four"));
    }
    return on.host.fs.open(path, options);
  };
  const reading = following(on, { ...on.host, fs: { ...on.host.fs, open } });
  await reading.until("one\n");
  await rename(on.log, `${on.log}.2`);
  await writeFile(`${on.log}.1`, line("two"));
  await writeFile(on.log, line("three"));
  await reading.until("one\ntwo\nthree\nfour\n");
  assert.ok(moved);
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("keeps reading the old file until the new one has lines and the old one stops growing", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  await reading.until("one\n");
  const old = `${on.log}.20260101-000000`;
  await rename(on.log, old);
  await writeFile(on.log, "");
  await appendFile(old, line("two"));
  await reading.until("one\ntwo\n");
  await reading.clock.advance(10_000);
  await appendFile(old, line("three"));
  await reading.until("one\ntwo\nthree\n");
  await writeFile(on.log, line("five"));
  await appendFile(old, line("four"));
  await reading.until("one\ntwo\nthree\nfour\nfive\n");
  reading.stop.abort();
  await assert.rejects(ended(reading));
  assert.equal(on.openFiles(), 0);
});

test("rereads a truncated file from its start", async () => {
  await using on = await disk();
  await writeFile(on.log, line("a long first line"));
  const reading = following(on);
  await reading.until("a long first line\n");
  await truncate(on.log, 0);
  await appendFile(on.log, line("b"));
  await reading.until("a long first line\nb\n");
  reading.stop.abort();
  await assert.rejects(ended(reading));
  assert.equal(on.openFiles(), 0);
});

test("ends the stream if the container is removed, but not if the runtime is unreachable", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  reading.set(new CodedError("unavailable", "no socket"));
  await reading.until("one\n");
  await appendFile(on.log, line("two"));
  await reading.until("one\ntwo\n");
  reading.set(new CodedError("not_found", "no such container"));
  await ended(reading);
});

test("resumes at the same byte after the connection to the target was lost", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const target = losable(on);
  const reading = following(on, target.host);
  await reading.until("one\n");
  await appendFile(on.log, `${line("two")}2026-01-01T00:00:01Z stdout F thr`);
  await reading.until("one\ntwo\n");
  target.lose();
  await appendFile(on.log, `ee\n${line("four")}`);
  await reading.clock.advance(60_000);
  assert.equal(reading.text(), "one\ntwo\n");
  target.find();
  await reading.until("one\ntwo\nthree\nfour\n");
  reading.set(false);
  await appendFile(on.log, line("last words"));
  await ended(reading);
  assert.equal(reading.text(), "one\ntwo\nthree\nfour\nlast words\n");
  assert.equal(on.openFiles(), 0);
});

test("first reads files that were rotated while the target was unreachable, then the new file", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const target = losable(on);
  const reading = following(on, target.host);
  await reading.until("one\n");
  target.lose();
  await appendFile(on.log, line("two"));
  await rename(on.log, `${on.log}.20260101-000000`);
  await writeFile(on.log, line("three"));
  target.find();
  await reading.until("one\ntwo\nthree\n");
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("ends if the log is gone when the target comes back", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const target = losable(on);
  const reading = following(on, target.host);
  await reading.until("one\n");
  target.lose();
  await rm(on.log);
  await reading.clock.advance(10_000);
  target.find();
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});

test("fails on any other error from the runtime", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  reading.set(new CodedError("permission_denied", "no"));
  await assert.rejects(ended(reading), { code: "permission_denied" });
});

test("with file watches, reads and queries only on changes, and streams them at once", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  let tell = () => {};
  let watched = "";
  const watch: LogHost["watch"] = async function* (path, signal) {
    watched = path;
    for (;;) {
      await new Promise<void>((resolve) => {
        tell = resolve;
        signal.addEventListener("abort", () => resolve(), { once: true });
      });
      if (signal.aborted) return;
      yield `${path}/0.log`;
    }
  };
  const reading = following(on, { ...on.host, watch });
  await reading.until("one\n");
  for (let change = 0; change < 5; change++) {
    await appendFile(on.log, line(`${change}`));
    tell();
    const isShown = () => reading.text().endsWith(`${change}\n`);
    await turns(reading.clock, isShown, 0);
    assert.ok(isShown(), "shown only after time has passed");
  }
  assert.equal(watched, on.directory);
  assert.ok(reading.asked() <= 2, `asked ${reading.asked()} times`);
  reading.stop.abort();
  await assert.rejects(ended(reading));
});

test("follows Docker's numbered rotation and joins partial lines", async () => {
  await using on = await disk();
  const entry = (text: string) =>
    `${JSON.stringify({ log: text, stream: "stdout", time: "2026-01-01T00:00:01.5Z" })}\n`;
  await writeFile(on.log, entry("one\n") + entry("two and "));
  const reading = following(on);
  await reading.until("one\ntwo and ");
  await rename(on.log, `${on.log}.1`);
  await appendFile(`${on.log}.1`, entry("a half\n"));
  await writeFile(on.log, entry("three\n"));
  await reading.until("one\ntwo and a half\nthree\n");
  await rename(`${on.log}.1`, `${on.log}.2`);
  await rename(on.log, `${on.log}.1`);
  await writeFile(on.log, entry("four\n"));
  await reading.until("one\ntwo and a half\nthree\nfour\n");
  reading.set(false);
  await ended(reading);
  assert.equal(on.openFiles(), 0);
});
