import { readFile } from "node:fs/promises";
import type { Clock } from "../../src/lib/clock.ts";
import type { Host } from "../../src/seams/host.ts";
import { dialLocal, listenLocal } from "./dial.ts";
import { localFs } from "./fs.ts";
import { runLocal, spawnLocal } from "./run.ts";
import { watchLocal } from "./watch.ts";

/** The machine that graftlet runs on, as a Host. */
export function localHost({ clock }: { readonly clock: Clock }): Host {
  return {
    fs: localFs(),
    clock: {
      offsetMs: () => Promise.resolve(0),
      bootId: async () => (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim(),
    },
    run: (argv, options) => runLocal(clock, argv, options),
    spawn: spawnLocal,
    dial: dialLocal,
    listen: listenLocal,
    watch: watchLocal,
    async [Symbol.asyncDispose]() {},
  };
}
