import type { Clock } from "../../lib/clock.ts";
import { hasCode, ignoreNotFound } from "../../lib/errors.ts";
import type { Host } from "../../seams/host.ts";
import { systemdManager } from "./bus.ts";
import { type MessageBus, connectMessageBus } from "./message-bus.ts";
import { type BusTransport, openBusStreams, busUnreachable } from "./systemd-client.ts";
import { command } from "../../seams/command.ts";

/** The target's logind, which announces shutdowns and delays them for holders of inhibitor locks.
 *  @see https://systemd.io/INHIBITOR_LOCKS/ */
export type Logind = Awaited<ReturnType<typeof connectLogind>>;

export interface LogindDeps {
  readonly host: Pick<Host, "dial" | "spawn" | "run">;
  readonly clock: Clock;
}

const destination = "org.freedesktop.login1";
const path = "/org/freedesktop/login1";
const manager = `${destination}.Manager`;
const unit = "systemd-logind.service";

/** Connects to logind over the target's system bus, and stays connected. @param onShutdown called when logind announces or
 *  cancels a shutdown; `isShuttingDown` returns which. Not called for signals of other senders, which every user of the
 *  machine may send. @throws unavailable without a system bus or logind; permission_denied, deadline_exceeded. */
export async function connectLogind(deps: LogindDeps, onShutdown: () => void, signal: AbortSignal) {
  const bus = await connected(deps, signal);
  const property = (name: string, stop: AbortSignal) =>
    bus.call(
      {
        destination,
        path,
        interface: "org.freedesktop.DBus.Properties",
        member: "Get",
        signature: "ss",
        body: [manager, name],
      },
      stop,
    );
  try {
    await bus.subscribe(
      { sender: destination, path, interface: manager, member: "PrepareForShutdown" },
      onShutdown,
      signal,
    );
  } catch (error) {
    bus.close();
    throw error;
  }
  return {
    /** Maximum delay of a shutdown, milliseconds. */
    inhibitDelayMs: async (stop: AbortSignal): Promise<number> =>
      Number(await property("InhibitDelayMaxUSec", stop)) / 1000,
    /** True if a shutdown is in progress and delayed by inhibitors. */
    isShuttingDown: async (stop: AbortSignal): Promise<boolean> =>
      (await property("PreparingForShutdown", stop)) === true,
    /** Makes logind reload its configuration, without waiting for it. @throws permission_denied. */
    async reload(stop: AbortSignal): Promise<void> {
      const hangUp = 1;
      const kill = { ...systemdManager, member: "KillUnit", signature: "ssi", body: [unit, "all", hangUp] };
      await bus.call(kill, stop).catch(async (error: unknown) => {
        // A login user without the permission may have sudo.
        if (!hasCode(error, "permission_denied") || !(await reloadLogind(deps.host, stop))) throw error;
      });
    },
    /** Aborts, with unavailable, once the connection is lost. */
    lost: bus.lost,
    close: bus.close,
  };
}

/** Makes logind reload its configuration with a command. @returns false if that failed. */
export async function reloadLogind(host: Pick<Host, "run">, signal: AbortSignal): Promise<boolean> {
  const argv = command(["systemctl", "--no-ask-password", "kill"], ["--signal=HUP"], [unit]);
  return (await ignoreNotFound(host.run(argv, { signal })))?.code === 0;
}

async function connected({ host, clock }: LogindDeps, signal: AbortSignal): Promise<MessageBus> {
  const by = async (way: BusTransport) => {
    try {
      return await connectMessageBus(await openBusStreams({ host }, way, signal), clock, signal);
    } catch (error) {
      throw hasCode(error, "unavailable", "not_found") ? busUnreachable(error) : error;
    }
  };
  try {
    return await by("socket");
  } catch (error) {
    if (!hasCode(error, "permission_denied")) throw error;
    return await by("bridge").catch(() => {
      throw error;
    });
  }
}

/** The file that raises logind's maximum delay, at the kubelet's path, and its directory. */
export const inhibitDelayDirectory = "/etc/systemd/logind.conf.d";
export const inhibitDelayFile = `${inhibitDelayDirectory}/99-kubelet.conf`;

/** Content of the inhibit delay file. @param delayMs rounded to whole seconds. */
export function inhibitDelayText(delayMs: number): string {
  return `# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=${Math.round(delayMs / 1000)}\n`;
}
