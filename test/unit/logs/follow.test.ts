import assert from "node:assert/strict";
import { appendFile, rename, rm, truncate, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import type { LogHost } from "../../../src/logs/file.ts";
import { disk } from "./disk.ts";
import { ended, following, line, losable, turns } from "./following.ts";

test("shows what is added, line by line, until the container is gone", async () => {
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

test("survives rotation, losing nothing of the old file", async () => {
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

test("several rotations behind in a log that Docker rotates, it reads each file in turn", async () => {
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

test("a file that rotation moves while it is opened is not taken for another", async () => {
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

test("stays with the old file until the new one has lines and the old one is at rest", async () => {
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

test("a file that was cut short is read from its start", async () => {
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

test("a runtime that is away does not end it, a container that is gone does", async () => {
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

test("after the loss of its target it goes on at the byte where it stopped", async () => {
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

test("what was rotated away while the target was lost is read before the new file", async () => {
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

test("a log that is gone when its target is back has come to its end", async () => {
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

test("any other failure of the runtime fails the reading", async () => {
  await using on = await disk();
  await writeFile(on.log, line("one"));
  const reading = following(on);
  reading.set(new CodedError("permission_denied", "no"));
  await assert.rejects(ended(reading), { code: "permission_denied" });
});

test("with a host that watches nothing is read or asked without need, and a change shows at once", async () => {
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
    assert.ok(isShown(), "not without time passing");
  }
  assert.equal(watched, on.directory);
  assert.ok(reading.asked() <= 2, `asked ${reading.asked()} times`);
  reading.stop.abort();
  await assert.rejects(ended(reading));
});

test("follows Docker's rotation: the file gets a number, a new one takes its name, parts of lines are joined", async () => {
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
