import type { Clock } from "../../lib/clock.ts";
import { CodedError, hasCode, throwIfAborted } from "../../lib/errors.ts";
import { createSharedWork } from "../../lib/shared-work.ts";
import type { Host } from "../../seams/host.ts";
import { type SystemdBus, connectBus } from "./bus.ts";
import { busSlices } from "./bus-slices.ts";
import type { Wire } from "./bus-connection.ts";
import type { SliceUnits } from "./slices.ts";
import { commandSlices } from "./systemctl.ts";
import { command } from "../../seams/command.ts";

export interface ReachDeps {
  readonly host: Pick<Host, "dial" | "spawn" | "run">;
  readonly clock: Clock;
}

/** Transports to systemd. A connection to the bus has the permissions of the connecting user, over SSH the login's. If these
 *  do not suffice, a program that the host runs (as root, if it can) relays to the bus; without a connection, commands are
 *  run. */
export type BusWay = "socket" | "bridge";
type Way = BusWay | "commands";

export const busSocket = "/run/dbus/system_bus_socket";
const bridge = "systemd-stdio-bridge";
/** Timeout for connecting to a bus, milliseconds. */
const loginWithinMs = 30_000;
/** How long an idle connection is kept, milliseconds: links have few channels. */
const idleMs = 5_000;

/** A node's access to systemd: one shared connection, opened on demand, closed when idle and reopened after a loss, which
 *  rejects calls in flight. */
export function reachSystemd({ host, clock }: ReachDeps): SliceUnits & AsyncDisposable {
  /** Transport to try first: the relay, once it has succeeded where the socket was denied. */
  let first: Way = "socket";
  const connection = createConnection({ host, clock });
  const commands = commandSlices(host);
  const by = async <T>(way: Way, ask: (units: SliceUnits) => Promise<T>, signal: AbortSignal): Promise<T> =>
    way === "commands" ? ask(commands) : connection.use(way, ask, signal);
  const asked = async <T>(ask: (units: SliceUnits) => Promise<T>, signal: AbortSignal): Promise<T> => {
    let refused: unknown;
    let way = first;
    for (;;) {
      try {
        const answer = await by(way, ask, signal);
        if (way === "bridge") first = way;
        return answer;
      } catch (error) {
        throwIfAborted(signal);
        if (hasCode(error, "permission_denied")) refused ??= error;
        const next = nextWay(way, error);
        if (next === undefined) {
          if (way === "commands") first = "socket";
          throw way === "commands" && refused !== undefined ? refused : error;
        }
        way = next;
      }
    }
  };
  return {
    version: (signal) => asked((units) => units.version(signal), signal),
    start: (slice, properties, signal) => asked((units) => units.start(slice, properties, signal), signal),
    set: (slice, properties, signal) => asked((units) => units.set(slice, properties, signal), signal),
    stop: (slice, signal) => asked((units) => units.stop(slice, signal), signal),
    [Symbol.asyncDispose]: async () => connection.close(),
  };
}

/** The bus could not be opened, in contrast to a lost connection. */
class NoBus extends CodedError {}

function nextWay(via: Way, error: unknown): Way | undefined {
  const isDenied = hasCode(error, "permission_denied");
  if (via === "socket" && isDenied) return "bridge";
  return via !== "commands" && (isDenied || error instanceof NoBus) ? "commands" : undefined;
}

function createConnection({ host, clock }: ReachDeps) {
  let open: { readonly bus: SystemdBus; readonly units: SliceUnits; readonly way: BusWay } | undefined;
  let users = 0;
  let idle: { cancel(): void } | undefined;
  const shared = createSharedWork<NonNullable<typeof open>>(clock, loginWithinMs);
  const openBy = async (way: BusWay, signal: AbortSignal) => {
    open?.bus.close();
    const wire = await dialed({ host }, way, signal);
    const bus = await connectBus(wire, clock, signal);
    open = { bus, units: busSlices(bus, clock), way };
    return open;
  };
  const opened = async (way: BusWay, signal: AbortSignal) =>
    open?.way === way && !open.bus.lost.aborted ? open : shared((stop) => openBy(way, stop), signal);
  const close = () => {
    idle?.cancel();
    open?.bus.close();
    open = undefined;
  };
  return {
    close,
    async use<T>(way: BusWay, ask: (units: SliceUnits) => Promise<T>, signal: AbortSignal): Promise<T> {
      idle?.cancel();
      users++;
      try {
        const { units } = await opened(way, signal).catch((error: unknown) => {
          throw hasCode(error, "unavailable", "not_found") ? noBus(error) : error;
        });
        return await ask(units);
      } finally {
        users--;
        if (users === 0) idle = clock.after(idleMs, close);
      }
    },
  };
}

/** @param cause why the bus is unreachable. */
export function noBus(cause: unknown): NoBus {
  return new NoBus("unavailable", `the target's system bus at ${busSocket} is unreachable`, { cause });
}

/** Opens a connection to the bus. @throws permission_denied if graftlet's user may not connect; unavailable, not_found without
 *  a bus or relay. */
export async function dialed({ host }: Pick<ReachDeps, "host">, way: BusWay, signal: AbortSignal): Promise<Wire> {
  if (way === "socket") {
    const socket = await host.dial({ unix: busSocket }, signal);
    return { from: socket, to: socket };
  }
  const relay = await host.spawn(command(bridge));
  relay.stderr.resume();
  relay.exited.catch(() => undefined);
  relay.stdout.once("close", () => relay.kill());
  return { from: relay.stdout, to: relay.stdin };
}
