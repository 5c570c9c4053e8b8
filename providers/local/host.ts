import { readFile } from "node:fs/promises";
import type { Clock } from "../../src/lib/clock.ts";
import { createTargetBudget } from "../../src/lib/target-budget.ts";
import type { Host } from "../../src/seams/host.ts";
import { dialLocal, listenLocal } from "./dial.ts";
import { localFs } from "./fs.ts";
import { runLocal, spawnLocal } from "./run.ts";
import { watchLocal } from "./watch.ts";

export interface LocalHostDeps {
  readonly clock: Clock;
  readonly there?: (argv: readonly string[]) => Promise<readonly string[]>;
}

/** The machine that graftlet runs on, as a Host.
 *  @param there transforms commands to run on the machine when graftlet is in a Pod that has the machine's files at the
 *  machine's paths. */
export function localHost({ clock, there = async (argv) => argv }: LocalHostDeps): Host {
  return {
    fs: localFs(),
    budget: createTargetBudget({ clock }),
    clock: {
      offsetMs: () => Promise.resolve(0),
      bootId: async () => (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim(),
    },
    run: async (argv, options) => runLocal(clock, await there(argv), options),
    spawn: async (argv, signal) => spawnLocal(await there(argv), signal),
    dial: dialLocal,
    listen: listenLocal,
    watch: watchLocal,
    async [Symbol.asyncDispose]() {},
  };
}
