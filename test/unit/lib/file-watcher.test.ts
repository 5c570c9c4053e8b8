import assert from "node:assert/strict";
import { mkdir, mkdtempDisposable, rename, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createFileWatcher } from "../../../src/lib/file-watcher.ts";
import { fakeClock } from "../../fakes/clock.ts";

/** No debounce delay after an event, so that the next change is a separate one. */
const clock = { ...fakeClock(), sleep: () => Promise.resolve() };
/** True if the change was reported in time. */
const came = async (news: Promise<void>, withinMs: number): Promise<boolean> =>
  Promise.race([news.then(() => true), sleep(withinMs, false)]);

test("detects files that were written, replaced or changed between waits, and ignores their siblings", async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), "graftlet-news-"));
  const at = (name: string): string => join(folder.path, name);
  await writeFile(at("ca.crt"), "one");
  const stop = new AbortController();
  const next = createFileWatcher([at("ca.crt"), at("later.crt")], clock);

  const first = next(stop.signal);
  assert.ok(!(await came(first, 50)));
  await writeFile(at("neighbour"), "x");
  assert.ok(!(await came(first, 100)));
  await writeFile(at("ca.crt"), "two!");
  assert.ok(await came(first, 5_000), "written");

  const second = next(stop.signal);
  await writeFile(at("new"), "three");
  await rename(at("new"), at("ca.crt"));
  assert.ok(await came(second, 5_000), "replaced");

  await writeFile(at("later.crt"), "four");
  assert.ok(await came(next(stop.signal), 5_000), "created between two waits");

  const last = next(stop.signal);
  assert.ok(!(await came(last, 50)));
  stop.abort();
  assert.ok(await came(last, 5_000), "the wait ends with its signal");
});

test("detects an update of a mounted Secret, whose files link into a swapped directory", async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), "graftlet-news-"));
  const at = (name: string): string => join(folder.path, name);
  for (const version of ["..1", "..2"]) {
    await mkdir(at(version));
    await writeFile(join(at(version), "tls.crt"), version);
  }
  await symlink("..1", at("..data"));
  await symlink("..data/tls.crt", at("tls.crt"));
  const stop = new AbortController();
  const news = createFileWatcher([at("tls.crt")], clock)(stop.signal);
  assert.ok(!(await came(news, 50)));
  await symlink("..2", at("..data_tmp"));
  await rename(at("..data_tmp"), at("..data"));
  assert.ok(await came(news, 5_000));
});

test("keeps waiting when the directory does not exist", async () => {
  const stop = new AbortController();
  const news = createFileWatcher(["/nowhere/of/graftlet/ca.crt"], clock)(stop.signal);
  assert.ok(!(await came(news, 50)));
  stop.abort();
  assert.ok(await came(news, 5_000));
});
