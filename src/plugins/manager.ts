import { createBackoff } from "../lib/backoff.ts";
import type { Clock } from "../lib/clock.ts";
import { messageOf, ignoreNotFound } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { pause } from "../lib/pause.ts";
import type { Service } from "../lib/service-group.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { Host, HostFs } from "../seams/host.ts";
import { createHints } from "./hints.ts";
import { type PluginHandlers, type Registered, registerPlugin } from "./registration.ts";
import { type FoundSockets, findSockets } from "./sockets.ts";

export interface PluginManagerDeps {
  readonly host: Pick<Host, "fs" | "dial" | "watch" | "budget">;
  /** Directory of the sockets on the target. */
  readonly directory: string;
  readonly handlers: PluginHandlers;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Reconcile interval while something is pending, milliseconds: the kubelet's. */
const everyMs = 1_000;
/** Scan intervals of directories that cannot be watched, and of watched ones, milliseconds. */
const unwatchedEveryMs = 5_000;
const watchedEveryMs = 10_000;
/** Retry delays, milliseconds: the kubelet's. */
const firstRetryMs = 500;
const longestRetryMs = 122_000;
const directoryMode = 0o755;
/** Maximum number of concurrent registrations. */
const registersAtOnce = 16;

/** Registers plugins by their sockets in a directory of the target, and deregisters them when a socket is removed or replaced.
 *  If the directory cannot be read, the last state counts. (kubelet, pluginmanager)
 *  @see https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/ */
export function createPluginManager(deps: PluginManagerDeps): Service {
  const { host, directory, clock, log } = deps;
  return {
    name: "plugins",
    async run(signal) {
      const reconciler = createReconciler(deps, signal);
      let awake = Promise.withResolvers<void>();
      const onChange = () => {
        lookAt = 0;
        awake.resolve();
      };
      const hints = createHints({ host, onChange, log });
      let told = "";
      let lookAt = 0;
      const look = async () => {
        // A change during the scan triggers another one.
        lookAt = clock.monotonic() + (host.watch ? everyMs : unwatchedEveryMs);
        const before = told;
        try {
          const found = await madeAndFound(host.fs, directory, signal);
          if (hints.watch(found.directories) && lookAt > 0) lookAt = clock.monotonic() + watchedEveryMs;
          reconciler.found(found);
          told = found.truncated ? tooMany : "";
          if (found.truncated && before !== tooMany) log.warn({ directory }, tooMany);
        } catch (err) {
          if (signal.aborted) return;
          const why = messageOf(err);
          if (why !== told) log.warn({ err, directory }, "cannot scan plugin directory; retrying");
          told = why;
        }
      };
      while (!signal.aborted) {
        awake = Promise.withResolvers<void>();
        if (clock.monotonic() >= lookAt) await look();
        const untilLookMs = Math.max(0, lookAt - clock.monotonic());
        await pause(
          clock,
          reconciler.reconcile() ? untilLookMs : Math.min(everyMs, untilLookMs),
          awake.promise,
          signal,
        );
      }
      hints.stop();
      await reconciler.idle();
    },
  };
}

const tooMany = "ignoring some plugin sockets and directories: too many, or nested too deeply";

/** Finds sockets in a directory, which is created if missing. */
async function madeAndFound(fs: HostFs, directory: string, signal: AbortSignal): Promise<FoundSockets> {
  const found = await ignoreNotFound(findSockets(fs, directory, signal));
  if (found) return found;
  await fs.apply([{ do: "mkdir", path: directory, mode: directoryMode, parents: true }], signal);
  return findSockets(fs, directory, signal);
}

interface Reconciler {
  /** Sets the sockets that exist now. */
  found(sockets: FoundSockets): void;
  /** Starts all pending registrations and deregistrations, one per socket at a time. @returns true if nothing is pending. */
  reconcile(): boolean;
  idle(): Promise<unknown>;
}

function createReconciler(deps: PluginManagerDeps, signal: AbortSignal): Reconciler {
  const { clock, log } = deps;
  const registered = new Map<string, Registered & { readonly mark: string }>();
  const busy = new Map<string, Promise<void>>();
  const retries = createBackoff({ clock, initialMs: firstRetryMs, maxMs: longestRetryMs });
  const turns = createSemaphore(registersAtOnce);
  let wanted: ReadonlyMap<string, string> = new Map();

  const register = async (socket: string, mark: string) => {
    const taking = (taken: Registered) => void registered.set(socket, { ...taken, mark });
    try {
      await registerPlugin(deps, socket, taking, signal);
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
  const deregister = async (socket: string, { plugin, handler }: Registered) => {
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
    found: ({ sockets }) => (wanted = sockets),
    reconcile() {
      // Deregister first: another socket may belong to the same plugin.
      for (const [socket, known] of registered)
        if (wanted.get(socket) !== known.mark) begin(socket, () => deregister(socket, known));
      for (const [socket, mark] of wanted)
        if (!registered.has(socket) && retries.remaining(socket) === 0)
          begin(socket, () => turns(() => register(socket, mark)));
      retries.collect();
      return busy.size === 0 && wanted.size === registered.size;
    },
    idle: () => Promise.all(busy.values()),
  };
}
