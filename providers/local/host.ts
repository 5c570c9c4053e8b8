import { readFile } from "node:fs/promises";
import type { Clock } from "../../src/lib/clock.ts";
import { createTargetBudget } from "../../src/lib/target-budget.ts";
import type { Host } from "../../src/seams/host.ts";
import { dialLocal, listenLocal } from "./dial.ts";
import { localFs } from "./fs.ts";
import { nsenterFromPod } from "./in-pod.ts";
import { lockLocal } from "./lock.ts";
import { runLocal, spawnLocal } from "./run.ts";
import { watchLocal } from "./watch.ts";

export interface LocalHostDeps {
  readonly clock: Clock;
  /** Set if graftlet runs in a Pod of the machine, which has the machine's files at the same paths: the PID, as seen in the Pod, of a process
   *  in the machine's mount namespace. */
  readonly machinePid?: number;
}

/** The machine that graftlet runs on, as a Host. */
export function localHost({ clock, machinePid }: LocalHostDeps): Host {
  const onMachine = machinePid === undefined ? async (argv: readonly string[]) => argv : nsenterFromPod(machinePid);
  const root = machinePid === undefined ? "" : `/proc/${machinePid}/root`;
  return {
    fs: localFs(),
    budget: createTargetBudget({ clock }),
    clock: {
      offsetMs: () => Promise.resolve(0),
      bootId: async () => (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim(),
    },
    run: async (argv, options) => runLocal(clock, await onMachine(argv), options),
    spawn: async (argv, signal) => spawnLocal(await onMachine(argv), signal),
    lock: (path, options) => lockLocal(`${root}${path}`, onMachine, options),
    dial: dialLocal,
    listen: listenLocal,
    watch: watchLocal,
    async [Symbol.asyncDispose]() {},
  };
}
