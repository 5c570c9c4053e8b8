import assert from "node:assert/strict";
import { test } from "node:test";
import type { Host } from "../../../src/seams/host.ts";
import { writeAtomically } from "../../../src/volumes/atomic-writer.ts";
import type { VolumeContent } from "../../../src/volumes/content.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

type Files = Readonly<Record<string, string>>;

const contentOf = (files: Files): VolumeContent =>
  new Map(Object.entries(files).map(([path, text]) => [path, { data: Buffer.from(text), mode: 0o644 }]));

/** Content seen by a reader that opens every name in the volume. */
async function readable({ fs }: Host, names: readonly string[]): Promise<Files> {
  const read = async (name: string) =>
    [
      name,
      await fs.readFile(`/v/${name}`).then(
        (data) => data.toString(),
        () => undefined,
      ),
    ] as const;
  return Object.fromEntries((await Promise.all(names.map(read))).filter(([, text]) => text !== undefined)) as Files;
}

/** Writes `before`, then `after`, interrupting the second write after `broken` changes. */
async function breakOff(before: Files | undefined, after: Files, broken: number) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  await host.fs.apply([{ kind: "mkdir", path: "/v" }]);
  if (before) await writeAtomically({ host, clock }, "/v", contentOf(before), never);
  await clock.advance(1000);
  let left = broken;
  host.files.onChange(() => {
    if (left-- === 0) throw new Error("killed");
  });
  const whole = await writeAtomically({ host, clock }, "/v", contentOf(after), never).catch(() => false);
  host.files.onChange(undefined);
  return { host, clock, whole };
}

const rewrites: readonly (readonly [string, Files | undefined, Files])[] = [
  ["the first write", undefined, { a: "new", b: "new" }],
  ["changed content", { a: "old", b: "old" }, { a: "new", b: "new" }],
  [
    "names that are added and removed",
    { a: "old", gone: "old", "d/x": "old" },
    { a: "new", come: "new", "e/y": "new" },
  ],
];

for (const [what, before, after] of rewrites) {
  test(`killed between any two changes, readers see the old files or the new ones, and the next write repairs the volume: ${what}`, async () => {
    const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after)])];
    for (let broken = 0; ; broken++) {
      const { host, clock, whole } = await breakOff(before, after, broken);
      const seen = await readable(host, names);
      const matches = [before ?? {}, after].some((set) => JSON.stringify(sorted(set)) === JSON.stringify(sorted(seen)));
      assert.ok(matches, `after ${broken} changes: ${JSON.stringify(seen)}`);
      await clock.advance(1000);
      await writeAtomically({ host, clock }, "/v", contentOf(after), never);
      assert.deepEqual(await readable(host, names), after);
      if (whole) break;
    }
  });
}

function sorted(files: Files): readonly (readonly [string, string])[] {
  return Object.entries(files).sort(([a], [b]) => (a < b ? -1 : 1));
}
