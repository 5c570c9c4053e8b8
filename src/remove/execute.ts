import { posix } from "node:path";
import type { Cgroups } from "../host/cgroups.ts";
import { releaseDevicePath } from "../host/loop-device.ts";
import { inhibitDelayFile, reloadLogind } from "../host/systemd/logind.ts";
import { unmountPrivately } from "../host/mounts.ts";
import { codeOf, hasCode, messageOf, throwIfAborted, ignoreNotFound } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import type { Runtime } from "../seams/runtime.ts";
import { type RemovalPlan, type RemovalItem, type RemovalStage, describeItem } from "./plan.ts";

export interface ExecuteDeps {
  readonly host: Host;
  readonly runtime: Pick<Runtime, "stopContainer" | "removeContainer" | "stopPodSandbox" | "removePodSandbox">;
  readonly cgroups: Pick<Cgroups, "remove" | "children">;
  readonly drivers: CsiVolumeReleaser;
  /** Unmounts an iSCSI disk, and logs out of its target with the last one. @throws if the disk has to stay. */
  readonly unstageIscsiDisk: (id: string, signal: AbortSignal) => Promise<void>;
  /** Maximum grace period of a container. */
  readonly maxGraceSeconds: number;
  /** Called for each removed item. */
  readonly say: (line: string) => void;
}

/** Releases volumes through their CSI drivers. A volume that its driver does not release is reported as a sentence, not as a failure:
 *  it is unmounted nevertheless. */
export interface CsiVolumeReleaser {
  releasePod(uid: string, pod: string, signal: AbortSignal): Promise<readonly string[]>;
  /** Unstages the volumes of the node. */
  releaseNode(signal: AbortSignal): Promise<readonly string[]>;
}

export interface RemovalOutcome {
  /** One line for each item that could not be removed, with the reason. */
  readonly failures: readonly string[];
  /** One line for each item kept because an earlier one could not be removed. */
  readonly skipped: readonly string[];
  /** One line for each directory or cgroup that is not empty, or that the login may not remove. */
  readonly remaining: readonly string[];
  /** A sentence for each volume that its CSI driver did not release. */
  readonly notReleased: readonly string[];
}

/** Executes a plan: pods in parallel, the stages of each pod in order. A failure is reported and blocks only what depends on it;
 *  if terminating a pod with CSI volumes fails, all other pods stay. Safe to repeat: missing items count as removed. */
export async function execute(deps: ExecuteDeps, plan: RemovalPlan, signal: AbortSignal): Promise<RemovalOutcome> {
  const tally = createTally(deps.say);
  const remove = (item: RemovalItem) => removeItem(deps, item, signal);
  const inParallel = async (pods: RemovalPlan["pods"]) => {
    await Promise.all(pods.map(({ stages }) => inOrder(stages, remove, tally)));
  };
  await inParallel(plan.csiPods);
  const rest = [plan.unstaging, ...plan.pods.flatMap(({ stages }) => stages), ...plan.staged];
  if (tally.failed()) tally.skip(rest.flat());
  else {
    await inOrder([plan.unstaging], remove, tally);
    await inParallel(plan.pods);
    await inOrder(plan.staged, remove, tally);
  }
  for (const item of plan.ownedResources) await tally.attempt(item, remove);
  if (tally.failed()) tally.skip(plan.last);
  else
    await inOrder(
      plan.last.map((item) => [item]),
      async (item) => {
        if (item.kind === "directory") await removeWithRoot(deps.host, item.path, plan.last, signal);
        return remove(item);
      },
      tally,
    );
  return tally.outcome();
}

/** Removes graftlet's own directory and the root directory around it in one step: if the process were killed in between, the root
 *  directory would stay forever, since nothing else refers to it. Failures are ignored here, because the directories are removed again
 *  one by one, which reports them. */
async function removeWithRoot(
  { fs }: Host,
  own: string,
  last: readonly RemovalItem[],
  signal: AbortSignal,
): Promise<void> {
  const root = posix.dirname(own);
  const holds = (path: string) => own.startsWith(`${path}/`);
  const around = last.flatMap((item) => (item.kind === "emptyDirectory" ? [item.path] : []));
  const paths = around.filter((path) => path === root || path.startsWith(`${root}/`));
  // Other directories are removed first, because they are recorded in graftlet's own directory.
  const [above, beside] = [paths.filter(holds), paths.filter((path) => !holds(path))];
  const emptied = (path: string) => ({ kind: "remove" as const, path });
  await fs
    .apply([...beside.map(emptied), { kind: "remove", path: own, recursive: true }, ...above.map(emptied)], signal)
    .catch(() => throwIfAborted(signal));
}

/** Starts a stage once the previous one is complete. */
async function inOrder(stages: readonly RemovalStage[], remove: Remove, tally: Tally): Promise<void> {
  for (const [index, stage] of stages.entries()) {
    const gone = await Promise.all(stage.map((item) => tally.attempt(item, remove)));
    if (!gone.every(Boolean)) return tally.skip(stages.slice(index + 1).flat());
  }
}

/** Removes one item. @returns the reason if the item stays without a failure; or a sentence for each volume that was not released. */
type Remove = (item: RemovalItem) => Promise<string | readonly string[] | undefined>;

type Tally = ReturnType<typeof createTally>;

function createTally(say: (line: string) => void) {
  const failures: string[] = [];
  const skipped: string[] = [];
  const remaining: string[] = [];
  const notReleased: string[] = [];
  return {
    /** @returns true if the next stage may start. */
    async attempt(item: RemovalItem, remove: Remove) {
      const line = describeItem(item);
      try {
        const why = await remove(item);
        if (typeof why === "string") remaining.push(`${line}: ${why}`);
        else if (why === undefined || why.length === 0) say(`removed ${line}`);
        else notReleased.push(...why);
        return true;
      } catch (error) {
        failures.push(`${line}: ${codeOf(error) === "unknown" ? String(error) : messageOf(error)}`);
        return false;
      }
    },
    skip: (things: readonly RemovalItem[]) => void skipped.push(...things.map(describeItem)),
    failed: () => failures.length > 0,
    outcome: () => ({ failures, skipped, remaining, notReleased }),
  };
}

async function removeItem(deps: ExecuteDeps, item: RemovalItem, signal: AbortSignal): ReturnType<Remove> {
  const { host, runtime, cgroups, drivers } = deps;
  switch (item.kind) {
    case "container": {
      const { id, running, graceSeconds } = item.container;
      if (running)
        await ignoreNotFound(runtime.stopContainer(id, Math.min(graceSeconds, deps.maxGraceSeconds), signal));
      await ignoreNotFound(runtime.removeContainer(id, signal));
      return undefined;
    }
    case "sandbox":
      await ignoreNotFound(runtime.stopPodSandbox(item.id, signal));
      await ignoreNotFound(runtime.removePodSandbox(item.id, signal));
      return undefined;
    case "mount":
      await unmountPrivately(host, item.path, item.outermost, signal);
      return undefined;
    case "heldDevice":
      await releaseDevicePath(host, item.path, signal);
      return undefined;
    case "published":
      return drivers.releasePod(item.uid, item.pod, signal);
    case "staged":
      return drivers.releaseNode(signal);
    case "iscsiDisk":
      await deps.unstageIscsiDisk(item.id, signal);
      return undefined;
    case "cgroup":
      return unlessForbidden(cgroups.remove([item.path], signal));
    case "directory":
      await host.fs.apply([{ kind: "remove", path: item.path, recursive: true }], signal);
      return undefined;
    case "link":
      await host.fs.apply([{ kind: "remove", path: item.path }], signal);
      return undefined;
    case "file":
      await host.fs.apply([{ kind: "remove", path: item.path }], signal);
      // Without the file, logind uses its own delay: after this reload, or after the next boot if the reload fails.
      if (item.path === inhibitDelayFile) await reloadLogind(host, signal).catch(() => throwIfAborted(signal));
      return undefined;
    case "belonging":
      await item.belonging.remove(signal);
      return undefined;
    case "emptyCgroup": {
      const below = await cgroups.children(item.path, signal);
      return below.length > 0 ? notEmpty : unlessNotEmpty(cgroups.remove([item.path], signal));
    }
    case "emptyDirectory":
      return unlessNotEmpty(host.fs.apply([{ kind: "remove", path: item.path }], signal));
  }
}

const notEmpty = "not empty";

function unlessNotEmpty(call: Promise<void>): Promise<string | undefined> {
  return unlessForbidden(call).catch((error: unknown) => {
    if (hasCode(error, "failed_precondition")) return notEmpty;
    throw error;
  });
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
