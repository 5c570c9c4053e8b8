import { createBackoff } from "../lib/backoff.ts";
import { messageOf, ignoreNotFound } from "../lib/errors.ts";
import type { Logger, ClockAndLog } from "../lib/log.ts";
import { pause } from "../lib/pause.ts";
import type { Runnable } from "../lib/runnables.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { Host, HostFs } from "../seams/host.ts";
import { type PluginHandlers, type RegisteredPlugin, registerPlugin } from "./registration.ts";
import { type FoundSockets, findSockets } from "./sockets.ts";

/** Records the plugins that are registered, and the sockets that were found. */
export interface RegistrationMeasures {
  /** @param registered sockets of the plugins that are registered. @param found sockets in the directory. */
  changed(registered: readonly string[], found: readonly string[]): void;
}

export interface PluginManagerDeps extends ClockAndLog {
  readonly measures: RegistrationMeasures;
  readonly host: Pick<Host, "fs" | "dial" | "watch" | "budget">;
  /** Directory of the sockets on the target. */
  readonly directory: string;
  readonly handlers: PluginHandlers;
}

/** Reconcile interval while something is pending, milliseconds: the kubelet's. */
const reconcileIntervalMs = 1_000;
/** Scan intervals of directories that cannot be watched, and of watched ones, milliseconds. */
const unwatchedScanIntervalMs = 5_000;
const watchedScanIntervalMs = 10_000;
/** Retry delays, milliseconds: the kubelet's. */
const initialRetryDelayMs = 500;
const maxRetryDelayMs = 122_000;
const directoryMode = 0o755;
const maxConcurrentRegistrations = 16;

/** Registers plugins by their sockets in a directory of the target, and deregisters them when a socket is removed or replaced. While the
 *  directory cannot be read, the registered plugins stay registered. (kubelet, pluginmanager)
 *  @see https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/ */
export function createPluginManager(deps: PluginManagerDeps): Runnable {
  const { host, directory, clock, log } = deps;
  return {
    name: "plugins",
    async run(signal) {
      const reconciler = createReconciler(deps, signal);
      let wakeUp = Promise.withResolvers<void>();
      const onChange = () => {
        nextScanAt = 0;
        wakeUp.resolve();
      };
      const watcher = createDirectoryWatcher({ host, onChange, log });
      let lastProblem = "";
      let nextScanAt = 0;
      const scan = async () => {
        // A change during the scan triggers another one.
        nextScanAt = clock.monotonic() + (host.watch ? reconcileIntervalMs : unwatchedScanIntervalMs);
        const before = lastProblem;
        try {
          const found = await ensureAndScan(host.fs, directory, signal);
          if (watcher.watch(found.directories) && nextScanAt > 0)
            nextScanAt = clock.monotonic() + watchedScanIntervalMs;
          reconciler.setSockets(found);
          lastProblem = found.truncated ? truncatedScan : "";
          if (found.truncated && before !== truncatedScan) log.warn({ directory }, truncatedScan);
        } catch (err) {
          if (signal.aborted) return;
          const why = messageOf(err);
          if (why !== lastProblem) log.warn({ err, directory }, "cannot scan plugin directory; retrying");
          lastProblem = why;
        }
      };
      while (!signal.aborted) {
        wakeUp = Promise.withResolvers<void>();
        if (clock.monotonic() >= nextScanAt) await scan();
        const untilScanMs = Math.max(0, nextScanAt - clock.monotonic());
        await pause(
          clock,
          reconciler.reconcile() ? untilScanMs : Math.min(reconcileIntervalMs, untilScanMs),
          wakeUp.promise,
          signal,
        );
      }
      watcher.stop();
      await reconciler.idle();
    },
  };
}

const truncatedScan = "ignoring some plugin sockets and directories: too many, or nested too deeply";

/** Finds sockets in a directory, which is created if missing. */
async function ensureAndScan(fs: HostFs, directory: string, signal: AbortSignal): Promise<FoundSockets> {
  const found = await ignoreNotFound(findSockets(fs, directory, signal));
  if (found) return found;
  await fs.apply([{ kind: "mkdir", path: directory, mode: directoryMode, parents: true }], signal);
  return findSockets(fs, directory, signal);
}

function createReconciler(deps: PluginManagerDeps, signal: AbortSignal) {
  const { clock, log } = deps;
  const registered = new Map<string, RegisteredPlugin & { readonly fingerprint: string }>();
  const busy = new Map<string, Promise<void>>();
  const retries = createBackoff({ clock, initialMs: initialRetryDelayMs, maxMs: maxRetryDelayMs });
  const semaphore = createSemaphore(maxConcurrentRegistrations);
  let wanted: ReadonlyMap<string, string> = new Map();

  const register = async (socket: string, fingerprint: string) => {
    const onAccepted = (accepted: RegisteredPlugin) => void registered.set(socket, { ...accepted, fingerprint });
    try {
      await registerPlugin(deps, socket, onAccepted, signal);
      const plugin = registered.get(socket)?.plugin;
      log.info({ socket, plugin: plugin?.name, endpoint: plugin?.endpoint }, "registered plugin");
      retries.reset(socket);
    } catch (err) {
      registered.delete(socket);
      if (signal.aborted) return;
      retries.next(socket);
      log.warn({ err, socket }, "cannot register plugin; retrying");
    }
  };
  const deregister = async (socket: string, { plugin, handler }: RegisteredPlugin) => {
    registered.delete(socket);
    log.info({ socket, plugin: plugin.name }, "deregistering plugin: its socket was removed or replaced");
    await handler.deregister(plugin, signal);
  };
  const begin = (socket: string, work: () => Promise<void>) => {
    if (busy.has(socket)) return;
    const done = work().finally(() => busy.delete(socket));
    busy.set(socket, done);
  };

  return {
    /** Sets the sockets that exist now. */
    setSockets: ({ sockets }: FoundSockets) => (wanted = sockets),
    /** Starts all pending registrations and deregistrations, one per socket at a time. @returns true if nothing is pending. */
    reconcile(): boolean {
      // Deregister first: another socket may belong to the same plugin.
      for (const [socket, known] of registered)
        if (wanted.get(socket) !== known.fingerprint) begin(socket, () => deregister(socket, known));
      for (const [socket, fingerprint] of wanted)
        if (!registered.has(socket) && retries.remaining(socket) === 0)
          begin(socket, () => semaphore(() => register(socket, fingerprint)));
      retries.collect();
      deps.measures.changed([...registered.keys()], [...wanted.keys()]);
      return busy.size === 0 && wanted.size === registered.size;
    },
    idle: () => Promise.all(busy.values()),
  };
}

interface DirectoryWatcherDeps {
  readonly host: Pick<Host, "watch">;
  readonly onChange: () => void;
  readonly log: Logger;
}

/** Notifies about possible changes in directories, if the host can watch them; a broken watch is restarted by the next call. */
function createDirectoryWatcher({ host, onChange, log }: DirectoryWatcherDeps) {
  const watches = new Map<string, AbortController>();
  const follow = async (directory: string, ending: AbortController) => {
    try {
      for await (const _path of host.watch?.(directory, ending.signal) ?? []) onChange();
    } catch (error) {
      log.debug({ directory, why: messageOf(error) }, "cannot watch plugin directory");
    } finally {
      if (watches.get(directory) === ending) watches.delete(directory);
    }
  };
  const drop = (directory: string) => {
    watches.get(directory)?.abort();
    watches.delete(directory);
  };
  return {
    /** Watches exactly these directories. @returns true if all of them have been watched since the last call. */
    watch(directories: readonly string[]): boolean {
      const wanted = new Set(directories);
      for (const directory of watches.keys()) if (!wanted.has(directory)) drop(directory);
      const added = directories.filter((directory) => !watches.has(directory));
      for (const directory of host.watch ? added : []) {
        const ending = new AbortController();
        watches.set(directory, ending);
        void follow(directory, ending);
      }
      return added.length === 0;
    },
    stop: () => [...watches.keys()].forEach(drop),
  };
}
