import { posix } from "node:path";
import type { Cgroups } from "../host/cgroups.ts";
import { releaseDevicePath } from "../host/loop-device.ts";
import { inhibitDelayFile, reloadLogind } from "../host/systemd/logind.ts";
import { unmountPrivately } from "../host/mounts.ts";
import { codeOf, hasCode, messageOf, throwIfAborted, ignoreNotFound } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import type { Runtime } from "../seams/runtime.ts";
import { type Plan, type Thing, type Tier, nameOf } from "./plan.ts";

export interface ExecuteDeps {
  readonly host: Host;
  readonly runtime: Pick<Runtime, "stopContainer" | "removeContainer" | "stopPodSandbox" | "removePodSandbox">;
  readonly cgroups: Pick<Cgroups, "remove" | "children">;
  readonly drivers: GivesBack;
  /** Maximum grace period of a container. */
  readonly longestGraceSeconds: number;
  /** Called for each removed item. */
  readonly say: (line: string) => void;
}

/** Releases volumes through their CSI drivers. A volume that its driver does not release is reported as a sentence, not as a
 *  failure: it is unmounted all the same. */
export interface GivesBack {
  /** Unpublishes the volumes of a pod. */
  published(uid: string, pod: string, signal: AbortSignal): Promise<readonly string[]>;
  /** Unstages the volumes of the node. */
  staged(signal: AbortSignal): Promise<readonly string[]>;
}

/** Result of a removal. */
export interface Outcome {
  /** One line for each item that could not be removed, with the reason. */
  readonly failures: readonly string[];
  /** One line for each item kept because an earlier one could not be removed. */
  readonly kept: readonly string[];
  /** One line for each directory or cgroup that is not empty, or that the login may not remove. */
  readonly left: readonly string[];
  /** A sentence for each volume that its CSI driver did not release. */
  readonly notGivenBack: readonly string[];
}

/** Executes a plan: pods in parallel, the stages of each pod in order. A failure is reported and blocks only what depends on it;
 *  if terminating a pod with CSI volumes fails, all other pods stay. Safe to repeat: missing items count as removed. */
export async function execute(deps: ExecuteDeps, plan: Plan, signal: AbortSignal): Promise<Outcome> {
  const tally = createTally(deps.say);
  const remove = (thing: Thing) => removeThing(deps, thing, signal);
  const side = async (pods: Plan["pods"]) => {
    await Promise.all(pods.map(({ tiers }) => inOrder(tiers, remove, tally)));
  };
  await side(plan.ofDrivers);
  const rest = [plan.unstaging, ...plan.pods.flatMap(({ tiers }) => tiers), ...plan.staged];
  if (tally.failed()) tally.keep(rest.flat());
  else {
    await inOrder([plan.unstaging], remove, tally);
    await side(plan.pods);
    await inOrder(plan.staged, remove, tally);
  }
  for (const thing of plan.belongings) await tally.attempt(thing, remove);
  if (tally.failed()) tally.keep(plan.last);
  else
    await inOrder(
      plan.last.map((thing) => [thing]),
      async (thing) => {
        if (thing.is === "directory") await removeWithRoot(deps.host, thing.path, plan.last, signal);
        return remove(thing);
      },
      tally,
    );
  return tally.outcome();
}

/** Removes graftlet's own directory and the root directory around it in one step: after a kill in between, the root directory
 *  would stay forever, since nothing else refers to it. Failures show again when each is removed separately. */
async function removeWithRoot({ fs }: Host, own: string, last: readonly Thing[], signal: AbortSignal): Promise<void> {
  const root = posix.dirname(own);
  const holds = (path: string) => own.startsWith(`${path}/`);
  const around = last.flatMap((thing) => (thing.is === "emptyDirectory" ? [thing.path] : []));
  const paths = around.filter((path) => path === root || path.startsWith(`${root}/`));
  // Other directories are removed first: they are recorded in graftlet's own.
  const [above, beside] = [paths.filter(holds), paths.filter((path) => !holds(path))];
  const emptied = (path: string) => ({ do: "remove" as const, path });
  await fs
    .apply([...beside.map(emptied), { do: "remove", path: own, recursive: true }, ...above.map(emptied)], signal)
    .catch(() => throwIfAborted(signal));
}

/** Starts a stage once the previous one is complete. */
async function inOrder(tiers: readonly Tier[], remove: Remove, tally: Tally): Promise<void> {
  for (const [index, tier] of tiers.entries()) {
    const gone = await Promise.all(tier.map((thing) => tally.attempt(thing, remove)));
    if (!gone.every(Boolean)) return tally.keep(tiers.slice(index + 1).flat());
  }
}

/** @returns the reason why the item stays, if that is no failure; or a sentence for each volume that was not released. */
type Remove = (thing: Thing) => Promise<string | readonly string[] | undefined>;

interface Tally {
  /** @returns true if the next stage may start. */
  attempt(thing: Thing, remove: Remove): Promise<boolean>;
  keep(things: readonly Thing[]): void;
  failed(): boolean;
  outcome(): Outcome;
}

function createTally(say: (line: string) => void): Tally {
  const failures: string[] = [];
  const kept: string[] = [];
  const left: string[] = [];
  const notGivenBack: string[] = [];
  return {
    async attempt(thing, remove) {
      const line = nameOf(thing);
      try {
        const why = await remove(thing);
        if (typeof why === "string") left.push(`${line}: ${why}`);
        else if (why === undefined || why.length === 0) say(`removed ${line}`);
        else notGivenBack.push(...why);
        return true;
      } catch (error) {
        failures.push(`${line}: ${codeOf(error) === "unknown" ? String(error) : messageOf(error)}`);
        return false;
      }
    },
    keep: (things) => void kept.push(...things.map(nameOf)),
    failed: () => failures.length > 0,
    outcome: () => ({ failures, kept, left, notGivenBack }),
  };
}

async function removeThing(deps: ExecuteDeps, thing: Thing, signal: AbortSignal): ReturnType<Remove> {
  const { host, runtime, cgroups, drivers } = deps;
  switch (thing.is) {
    case "container": {
      const { id, running, graceSeconds } = thing.container;
      if (running)
        await ignoreNotFound(runtime.stopContainer(id, Math.min(graceSeconds, deps.longestGraceSeconds), signal));
      await ignoreNotFound(runtime.removeContainer(id, signal));
      return undefined;
    }
    case "sandbox":
      await ignoreNotFound(runtime.stopPodSandbox(thing.id, signal));
      await ignoreNotFound(runtime.removePodSandbox(thing.id, signal));
      return undefined;
    case "mount":
      await unmountPrivately(host, thing.path, thing.outermost, signal);
      return undefined;
    case "heldDevice":
      await releaseDevicePath(host, thing.path, signal);
      return undefined;
    case "published":
      return drivers.published(thing.uid, thing.pod, signal);
    case "staged":
      return drivers.staged(signal);
    case "cgroup":
      return unlessForbidden(cgroups.remove([thing.path], signal));
    case "directory":
      await host.fs.apply([{ do: "remove", path: thing.path, recursive: true }], signal);
      return undefined;
    case "link":
      await host.fs.apply([{ do: "remove", path: thing.path }], signal);
      return undefined;
    case "file":
      await host.fs.apply([{ do: "remove", path: thing.path }], signal);
      // Without the file logind falls back to its own delay; if the reload fails, from the next boot on.
      if (thing.path === inhibitDelayFile) await reloadLogind(host, signal).catch(() => throwIfAborted(signal));
      return undefined;
    case "belonging":
      await thing.belonging.remove(signal);
      return undefined;
    case "emptyCgroup": {
      const below = await cgroups.children(thing.path, signal);
      return below.length > 0 ? inUse : unlessInUse(cgroups.remove([thing.path], signal));
    }
    case "emptyDirectory":
      return unlessInUse(host.fs.apply([{ do: "remove", path: thing.path }], signal));
  }
}

const inUse = "not empty";

async function unlessInUse(call: Promise<void>): Promise<string | undefined> {
  try {
    return await unlessForbidden(call);
  } catch (error) {
    if (hasCode(error, "failed_precondition")) return inUse;
    throw error;
  }
}

async function unlessForbidden(call: Promise<void>): Promise<string | undefined> {
  try {
    await call;
    return undefined;
  } catch (error) {
    if (hasCode(error, "permission_denied")) return "the login has no permission to remove it";
    throw error;
  }
}
