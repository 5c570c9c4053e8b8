import { createCsiDriverClient } from "../csi/client.ts";
import { pluginRegistryOf } from "../host/layout.ts";
import type { Clock } from "../lib/clock.ts";
import { coalesce } from "../lib/coalesce.ts";
import { CodedError, hasCode, messageOf, throwIfAborted } from "../lib/errors.ts";
import { silentLog } from "../lib/log.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { CsiNodeService } from "../pipeline.ts";
import { connectedPlugins } from "../plugins/connected-plugins.ts";
import type { CsiVolumeReleaser } from "../remove/execute.ts";
import type { Host } from "../seams/host.ts";
import { csiUnmounter } from "../volumes/persistent/csi-unmounter.ts";
import { createCsiVolumeLister } from "../volumes/persistent/csi-volume-lister.ts";
import type { UnmounterDeps } from "../volumes/persistent/unmounter.ts";

export interface CsiVolumeReleaseDeps {
  readonly host: Host;
  readonly clock: Clock;
  readonly rootDir: string;
}

/** Timeout and interval of retries, milliseconds. Each call has its own timeout. */
const retryTimeoutMs = 30_000;
const retryDelayMs = 2_000;

/** Commands have no metrics. */
const unmeasured = { called: () => undefined, deviceUnmapped: () => undefined };

interface Failure {
  readonly volume: string;
  readonly why: unknown;
}

/** Unpublishes and unstages CSI volumes while their drivers still run on the target: drivers whose registration socket
 *  responds, whether or not they are pods of the node. */
export function createCsiVolumeRelease({ host, clock, rootDir }: CsiVolumeReleaseDeps): CsiVolumeReleaser {
  let drivers: Drivers = new Map();
  // Pods end concurrently and share one lookup.
  const refreshDrivers = coalesce(async () => {
    drivers = await driversOn({ host, clock }, rootDir);
  });
  const dataLister = createCsiVolumeLister({ host, rootDir });
  const unmounterDeps = async (): Promise<UnmounterDeps> => {
    await refreshDrivers();
    const driver = (name: string) => drivers.get(name) ?? notRunning(name);
    return {
      host,
      rootDir,
      clock,
      drivers: { driver },
      log: silentLog(),
      measures: unmeasured,
      listVolumes: dataLister,
      serialize: (_key, work) => work(),
    };
  };
  /** Retries calls that a driver rejects, until they succeed or the timeout expires. */
  const retryFailures = async (work: () => Promise<readonly Failure[]>, signal: AbortSignal) => {
    const deadline = clock.monotonic() + retryTimeoutMs;
    for (;;) {
      const failures = await untilAborted(work(), signal);
      const mayGo = failures.some(({ why }) => !hasCode(why, "not_found"));
      if (!mayGo || clock.monotonic() >= deadline) return failures.map(sentenceOf);
      await clock.sleep(retryDelayMs, signal);
    }
  };
  return {
    async releasePod(uid, pod, signal) {
      const work = async () => {
        const kept = await csiUnmounter.unpublish?.(await unmounterDeps(), uid, signal);
        return (kept ?? []).map(({ path, reason }) => ({ volume: `${volumeNameIn(path)} of pod ${pod}`, why: reason }));
      };
      return retryFailures(asFailures(`of pod ${pod}`, work, signal), signal);
    },
    async releaseNode(signal) {
      const work = async () => {
        const deps = await unmounterDeps();
        const unstaged = (await csiUnmounter.listStaged(deps, [], signal)).map((id) => {
          const unstage = async () => {
            // A volume that a pod still uses is reported for that pod.
            await csiUnmounter.unstage(deps, id, signal);
            return [];
          };
          return asFailures(id.slice(id.indexOf("^") + 1), unstage, signal)();
        });
        return (await Promise.all(unstaged)).flat();
      };
      return retryFailures(asFailures("of the node", work, signal), signal);
    },
  };
}

/** Node services of drivers, by their names. */
type Drivers = ReadonlyMap<string, CsiNodeService>;

async function driversOn(deps: Omit<CsiVolumeReleaseDeps, "rootDir">, rootDir: string): Promise<Drivers> {
  const { signal } = new AbortController();
  const plugins = await connectedPlugins(deps, pluginRegistryOf(rootDir), "CSIPlugin", signal);
  return new Map(
    plugins.map((plugin) => [plugin.name, createCsiDriverClient({ ...deps, measures: unmeasured }, plugin)] as const),
  );
}

function notRunning(name: string): never {
  throw new CodedError("not_found", `the driver ${name} is not running on the target`);
}

function asFailures(volume: string, work: () => Promise<readonly Failure[]>, signal: AbortSignal) {
  return () =>
    work().catch((why: unknown): readonly Failure[] => {
      throwIfAborted(signal);
      return [{ volume, why }];
    });
}

/** Volume name in the path of a published volume. */
function volumeNameIn(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** The error without the kubelet's prefix for the step. */
function sentenceOf({ volume, why }: Failure): string {
  const reason = messageOf(why).replace(/^kubernetes\.io\/csi: [A-Za-z.]+ failed: /, "");
  return `volume ${volume} (its data is untouched): ${reason}`;
}
