import assert from "node:assert/strict";
import { must } from "./processes.ts";

/** Processor time that a program takes to its end, milliseconds: what it takes on a machine with nothing else to do. That is
 *  the least of several runs, for a core that is shared with other tests is slower. @throws when it fails. */
export async function leastCpuMs(argv: readonly string[]): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let run = 0; run < 5; run += 1) least = Math.min(least, await cpuMs(argv));
  return least;
}

/** The processor time, milliseconds, in which a program is to start: 0.3 s, or, on a machine that is slower just now, fifteen times what
 *  an empty program takes: the file is large, and what slows memory slows the reading of it more. */
export async function promptMs(): Promise<number> {
  return Math.max(300, 15 * (await leastCpuMs([process.execPath, "-e", "0"])));
}

async function cpuMs(argv: readonly string[]): Promise<number> {
  // The last line of `times` is that of the shell's children.
  const said = await must(["sh", "-c", '"$@" >/dev/null && times', "sh", ...argv]);
  const children = said.trim().split("\n").at(-1) ?? "";
  const spent = [...children.matchAll(/(\d+)m([\d.]+)s/g)].map(
    ([, minutes, seconds]) => Number(minutes) * 60 + Number(seconds),
  );
  assert.equal(spent.length, 2, said);
  return spent.reduce((sum, seconds) => sum + seconds, 0) * 1000;
}
