import assert from "node:assert/strict";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { Profile } from "pprof-format";
import { systemClock } from "../../../src/lib/clock.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { type ProfileKind, createProfiles } from "../../../src/server/profiler.ts";
import { ask, start } from "./harness.ts";

/** Names of a profile's functions and of its sample types, and the sums of its values. */
function contents(bytes: Buffer) {
  const { function: functions, sampleType, sample, stringTable, durationNanos } = Profile.decode(gunzipSync(bytes));
  const text = (index: number | bigint) => stringTable.strings[Number(index)];
  return {
    functions: functions.map(({ name }) => text(name)),
    types: sampleType.map(({ type, unit }) => `${text(type)}/${text(unit)}`),
    sums: sampleType.map((_, index) => sample.reduce((sum, { value }) => sum + Number(value[index] ?? 0), 0)),
    durationMs: Number(durationNanos) / 1e6,
  };
}

test("a CPU profile has the functions that ran, with their time", async () => {
  const profiles = createProfiles(systemClock());
  const taking = profiles.take("cpu", 400, AbortSignal.timeout(20_000));
  const stop = new AbortController();
  const busy = setInterval(function spinForTheProfile() {
    const until = performance.now() + 30;
    while (performance.now() < until);
  }, 40);
  stop.signal.addEventListener("abort", () => clearInterval(busy));
  const found = contents(await taking.finally(() => stop.abort()));
  assert.ok(found.functions.includes("spinForTheProfile"), found.functions.join());
  assert.ok(!found.functions.includes("(idle)"));
  assert.deepEqual(found.types, ["samples/count", "cpu/nanoseconds"]);
  assert.equal(found.durationMs, 400);
  assert.ok((found.sums[0] ?? 0) > 0 && (found.sums[1] ?? 0) > 50e6 && (found.sums[1] ?? 0) < 10e9, String(found.sums));
});

test("a heap profile has the memory that was allocated during the profile and is still in use", async () => {
  const profiles = createProfiles(systemClock());
  const kept: string[][] = [];
  const taking = profiles.take("heap", 300, AbortSignal.timeout(20_000));
  const allocating = setInterval(function allocateForTheProfile() {
    for (let count = 0; count < 50; count++) kept.push(Array.from({ length: 20_000 }, (_, index) => `${index}`));
  }, 50);
  const found = contents(await taking.finally(() => clearInterval(allocating)));
  assert.ok(kept.length > 0);
  assert.ok(found.functions.includes("allocateForTheProfile"), found.functions.join());
  assert.deepEqual(found.types, ["inuse_space/bytes"]);
  assert.ok((found.sums[0] ?? 0) > 1e6, String(found.sums));
});

test("takes one profile of a kind at a time, and the next one once the caller has disconnected", async () => {
  const profiles = createProfiles(systemClock());
  const gone = new AbortController();
  const first = profiles.take("cpu", 60_000, gone.signal);
  await assert.rejects(profiles.take("cpu", 1, AbortSignal.timeout(20_000)), {
    code: "failed_precondition",
    message: "cpu profiling already in use",
  });
  await profiles.take("heap", 1, AbortSignal.timeout(20_000));
  gone.abort(new CodedError("cancelled", "the client has disconnected"));
  await assert.rejects(first, { code: "cancelled" });
  contents(await profiles.take("cpu", 1, AbortSignal.timeout(20_000)));
});

test("/debug/pprof takes a profile for the requested or the default time, within its limit", async () => {
  const taken: [ProfileKind, number][] = [];
  const take = async (kind: ProfileKind, durationMs: number) => {
    taken.push([kind, durationMs]);
    return Buffer.from("bytes");
  };
  await using server = await start({ deps: { profiles: { take } } });
  const { status, body, headers } = await ask(server, "/debug/pprof/profile?seconds=2");
  assert.deepEqual([status, body, headers["content-type"]], [200, "bytes", "application/octet-stream"]);
  assert.equal(headers["content-disposition"], 'attachment; filename="profile"');
  for (const query of ["profile", "profile?seconds=no", "heap", "heap?seconds=3"])
    await ask(server, `/debug/pprof/${query}`);
  assert.deepEqual(taken, [
    ["cpu", 2000],
    ["cpu", 30_000],
    ["cpu", 30_000],
    ["heap", 10_000],
    ["heap", 3000],
  ]);
  const refused = [
    ["profile?seconds=301", 400, "profile duration exceeds server's WriteTimeout\n"],
    ["heap?debug=1", 400, "only debug=0 is supported: read the profile with go tool pprof\n"],
    ["goroutine", 404, "Unknown profile\n"],
    ["profile/more", 404, "Unknown profile\n"],
  ] as const;
  for (const [path, expected, text] of refused) {
    const answer = await ask(server, `/debug/pprof/${path}`);
    assert.deepEqual([answer.status, answer.body, answer.headers["x-go-pprof"]], [expected, text, "1"], path);
  }
  assert.equal((await ask(server, "/debug/pprof/", { method: "POST" })).status, 405);
  assert.match((await ask(server, "/debug/pprof/")).body, /^\/debug\/pprof\/\nheap: .*\nprofile: /);
});

test("/debug/pprof reports a profile in progress, and disabled profiling", async () => {
  const busy = { take: () => Promise.reject(new CodedError("failed_precondition", "cpu profiling already in use")) };
  await using server = await start({ deps: { profiles: busy } });
  const answer = await ask(server, "/debug/pprof/profile");
  assert.deepEqual(
    [answer.status, answer.body],
    [500, "Could not enable CPU profiling: cpu profiling already in use\n"],
  );
  await using disabled = await start({ config: { enableProfilingHandler: false } });
  const other = await ask(disabled, "/debug/pprof/profile");
  assert.deepEqual([other.status, other.body], [405, "profiling endpoint is disabled.\n"]);
});
