import { posix } from "node:path";
import type { Cgroups } from "../host/cgroups.ts";
import { releaseDevice } from "../host/held-device.ts";
import { inhibitDelayFile, reloadLogind } from "../host/systemd/logind.ts";
import { unmountAlone } from "../host/mounts.ts";
import { codeOf, hasCode, messageOf, throwIfAborted, unlessGone } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import type { Runtime } from "../seams/runtime.ts";
import { type Plan, type Thing, type Tier, nameOf } from "./plan.ts";

export interface ExecuteDeps {
  readonly host: Host;
  readonly runtime: Pick<Runtime, "stopContainer" | "removeContainer" | "stopPodSandbox" | "removePodSandbox">;
  readonly cgroups: Pick<Cgroups, "remove" | "children">;
  readonly drivers: GivesBack;
  /** Longest grace period of a container. */
  readonly longestGraceSeconds: number;
  /** Called for each removed thing. */
  readonly say: (line: string) => void;
}

/** Gives volumes back to the storage drivers that they are of. What a driver does not take back is a sentence of the answer, and no
 *  failure: it is unmounted all the same. */
export interface GivesBack {
  /** What a pod has. */
  published(uid: string, pod: string, signal: AbortSignal): Promise<readonly string[]>;
  /** What the node has for its pods. */
  staged(signal: AbortSignal): Promise<readonly string[]>;
}

/** Result of a removal. */
export interface Outcome {
  /** One line for each thing that could not be removed, with the reason. */
  readonly failures: readonly string[];
  /** One line for each thing kept because something before it could not be removed. */
  readonly kept: readonly string[];
  /** One line for each directory or cgroup that is not empty, or that the login may not remove. */
  readonly left: readonly string[];
  /** A sentence for each volume that its storage driver has not taken back. */
  readonly notGivenBack: readonly string[];
}

/** Executes a plan: pods side by side, the tiers of each pod one after another. A failure is reported and holds up only its
 *  dependents; all other pods, where a pod with volumes of drivers does not end. Safe to repeat: missing things count as removed. */
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

/** Removes graftlet's own directory and the root directory around it in one step: a kill in between would leave the root
 *  directory for ever, since nothing else points to it. Its failures show again when each is removed by itself. */
async function removeWithRoot({ fs }: Host, own: string, last: readonly Thing[], signal: AbortSignal): Promise<void> {
  const root = posix.dirname(own);
  const holds = (path: string) => own.startsWith(`${path}/`);
  const around = last.flatMap((thing) => (thing.is === "emptyDirectory" ? [thing.path] : []));
  const paths = around.filter((path) => path === root || path.startsWith(`${root}/`));
  // What lies beside it goes first: the record of all of them lies in it.
  const [above, beside] = [paths.filter(holds), paths.filter((path) => !holds(path))];
  const emptied = (path: string) => ({ do: "remove" as const, path });
  await fs
    .apply([...beside.map(emptied), { do: "remove", path: own, recursive: true }, ...above.map(emptied)], signal)
    .catch(() => throwIfAborted(signal));
}

/** Begins a tier once the one before is gone. */
async function inOrder(tiers: readonly Tier[], remove: Remove, tally: Tally): Promise<void> {
  for (const [index, tier] of tiers.entries()) {
    const gone = await Promise.all(tier.map((thing) => tally.attempt(thing, remove)));
    if (!gone.every(Boolean)) return tally.keep(tiers.slice(index + 1).flat());
  }
}

/** @returns the reason why it stays, when that is no failure; a sentence for each volume that is not given back. */
type Remove = (thing: Thing) => Promise<string | readonly string[] | undefined>;

interface Tally {
  /** @returns true when the next tier may begin. */
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
        await unlessGone(runtime.stopContainer(id, Math.min(graceSeconds, deps.longestGraceSeconds), signal));
      await unlessGone(runtime.removeContainer(id, signal));
      return undefined;
    }
    case "sandbox":
      await unlessGone(runtime.stopPodSandbox(thing.id, signal));
      await unlessGone(runtime.removePodSandbox(thing.id, signal));
      return undefined;
    case "mount":
      await unmountAlone(host, thing.path, thing.outermost, signal);
      return undefined;
    case "heldDevice":
      await releaseDevice(host, thing.path, signal);
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
      // Without its file logind goes back to its own delay. Where it is not told, that is from the next boot on.
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

const inUse = "something else is in it";

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
    if (hasCode(error, "permission_denied")) return "it is not this login's to remove";
    throw error;
  }
}
