import type { Clock } from "../../lib/clock.ts";
import { hasCode } from "../../lib/errors.ts";
import type { Host } from "../../seams/host.ts";
import { systemdManager } from "./bus.ts";
import { type MessageBus, connectMessageBus } from "./message-bus.ts";
import { type BusWay, dialed, noBus } from "./reach.ts";
import { command } from "../../seams/command.ts";

/** The target's logind, which delays a shutdown for those who ask for it, and tells them of it.
 *  @see https://systemd.io/INHIBITOR_LOCKS/ */
export interface Logind {
  /** Longest delay of a shutdown, milliseconds. */
  inhibitDelayMs(signal: AbortSignal): Promise<number>;
  /** The machine is about to shut down, and waits for those who delay it. */
  isShuttingDown(signal: AbortSignal): Promise<boolean>;
  /** Has it read its configuration anew. Returns before it has. @throws permission_denied. */
  reload(signal: AbortSignal): Promise<void>;
  /** Aborts, with unavailable, once nothing can be heard any more. */
  readonly lost: AbortSignal;
  close(): void;
}

export interface LogindDeps {
  readonly host: Pick<Host, "dial" | "spawn" | "run">;
  readonly clock: Clock;
}

const destination = "org.freedesktop.login1";
const path = "/org/freedesktop/login1";
const manager = `${destination}.Manager`;
const unit = "systemd-logind.service";

/** Connects to logind by the target's system bus, and stays connected.
 *  @param onShutdown is called when logind says that a shutdown is about to begin, or that it was called off: `isShuttingDown` then
 *  says which. It is not called when anybody else says so on the bus, though every user of the machine may.
 *  @throws unavailable where there is no system bus or no logind; permission_denied, deadline_exceeded. */
export async function connectLogind(deps: LogindDeps, onShutdown: () => void, signal: AbortSignal): Promise<Logind> {
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
    await bus.hear({ sender: destination, path, interface: manager, member: "PrepareForShutdown" }, onShutdown, signal);
  } catch (error) {
    bus.close();
    throw error;
  }
  return {
    inhibitDelayMs: async (stop) => Number(await property("InhibitDelayMaxUSec", stop)) / 1000,
    isShuttingDown: async (stop) => (await property("PreparingForShutdown", stop)) === true,
    async reload(stop) {
      const hangUp = 1;
      const kill = { ...systemdManager, member: "KillUnit", signature: "ssi", body: [unit, "all", hangUp] };
      await bus.call(kill, stop).catch(async (error: unknown) => {
        // A login that may not may have sudo.
        if (!hasCode(error, "permission_denied") || !(await reloadLogind(deps.host, stop))) throw error;
      });
    },
    lost: bus.lost,
    close: bus.close,
  };
}

/** Has logind read its configuration anew, by a command. @returns whether it could be told to. */
export async function reloadLogind(host: Pick<Host, "run">, signal: AbortSignal): Promise<boolean> {
  const argv = command(["systemctl", "--no-ask-password", "kill"], ["--signal=HUP"], [unit]);
  try {
    return (await host.run(argv, { signal })).code === 0;
  } catch (error) {
    if (hasCode(error, "not_found")) return false;
    throw error;
  }
}

async function connected({ host, clock }: LogindDeps, signal: AbortSignal): Promise<MessageBus> {
  const by = async (way: BusWay) => {
    try {
      return await connectMessageBus(await dialed({ host }, way, signal), clock, signal);
    } catch (error) {
      throw hasCode(error, "unavailable", "not_found") ? noBus(error) : error;
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

/** The file by which a node raises logind's longest delay, where a kubelet has it, and its directory. */
export const inhibitDelayDirectory = "/etc/systemd/logind.conf.d";
export const inhibitDelayFile = `${inhibitDelayDirectory}/99-kubelet.conf`;

/** Content of that file. @param delayMs rounded to whole seconds. */
export function inhibitDelayText(delayMs: number): string {
  return `# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=${Math.round(delayMs / 1000)}\n`;
}
