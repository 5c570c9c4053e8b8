import type { Clock } from "../../lib/clock.ts";
import { CodedError, hasCode, throwIfAborted } from "../../lib/errors.ts";
import { createSharedPromise } from "../../lib/shared-promise.ts";
import type { Host } from "../../seams/host.ts";
import { type SystemdBus, connectBus } from "./bus.ts";
import { busSlices } from "./bus-slices.ts";
import type { BusStreams } from "./bus-connection.ts";
import type { SliceUnits } from "./slices.ts";
import { commandSlices } from "./systemctl.ts";
import { command } from "../../seams/command.ts";

export interface SystemdClientDeps {
  readonly host: Pick<Host, "dial" | "spawn" | "run">;
  readonly clock: Clock;
}

/** Transports to systemd. A connection to the bus has the permissions of the connecting user, over SSH the login's. If these
 *  do not suffice, a program that the host runs (as root, if it can) relays to the bus; without a connection, commands are
 *  run. */
export type BusTransport = "socket" | "bridge";
type Transport = BusTransport | "commands";

export const busSocket = "/run/dbus/system_bus_socket";
const bridge = "systemd-stdio-bridge";
const connectTimeoutMs = 30_000;
/** How long an idle connection is kept, milliseconds: links have few channels. */
const idleMs = 5_000;

/** A node's access to systemd: one shared connection, opened on demand, closed when idle and reopened after a loss, which
 *  rejects calls in flight. */
export function createSystemdClient({ host, clock }: SystemdClientDeps): SliceUnits & AsyncDisposable {
  /** Transport to try first: the relay, once it has succeeded where the socket was denied. */
  let preferred: Transport = "socket";
  const connection = createConnection({ host, clock });
  const commands = commandSlices(host);
  const callOver = async <T>(
    way: Transport,
    ask: (units: SliceUnits) => Promise<T>,
    signal: AbortSignal,
  ): Promise<T> => (way === "commands" ? ask(commands) : connection.use(way, ask, signal));
  const callWithFallback = async <T>(ask: (units: SliceUnits) => Promise<T>, signal: AbortSignal): Promise<T> => {
    let refused: unknown;
    let way = preferred;
    for (;;) {
      try {
        const answer = await callOver(way, ask, signal);
        if (way === "bridge") preferred = way;
        return answer;
      } catch (error) {
        throwIfAborted(signal);
        if (hasCode(error, "permission_denied")) refused ??= error;
        const next = nextTransport(way, error);
        if (next === undefined) {
          if (way === "commands") preferred = "socket";
          throw way === "commands" && refused !== undefined ? refused : error;
        }
        way = next;
      }
    }
  };
  return {
    version: (signal) => callWithFallback((units) => units.version(signal), signal),
    start: (slice, properties, signal) => callWithFallback((units) => units.start(slice, properties, signal), signal),
    set: (slice, properties, signal) => callWithFallback((units) => units.set(slice, properties, signal), signal),
    stop: (slice, signal) => callWithFallback((units) => units.stop(slice, signal), signal),
    [Symbol.asyncDispose]: async () => connection.close(),
  };
}

/** The bus could not be opened, in contrast to a lost connection. */
class BusUnreachable extends CodedError {}

function nextTransport(via: Transport, error: unknown): Transport | undefined {
  const isDenied = hasCode(error, "permission_denied");
  if (via === "socket" && isDenied) return "bridge";
  return via !== "commands" && (isDenied || error instanceof BusUnreachable) ? "commands" : undefined;
}

function createConnection({ host, clock }: SystemdClientDeps) {
  let open: { readonly bus: SystemdBus; readonly units: SliceUnits; readonly way: BusTransport } | undefined;
  let users = 0;
  let idle: { cancel(): void } | undefined;
  const shared = createSharedPromise<NonNullable<typeof open>>(clock, connectTimeoutMs);
  const openBy = async (way: BusTransport, signal: AbortSignal) => {
    open?.bus.close();
    const wire = await openBusStreams({ host }, way, signal);
    const bus = await connectBus(wire, clock, signal);
    open = { bus, units: busSlices(bus, clock), way };
    return open;
  };
  const opened = async (way: BusTransport, signal: AbortSignal) =>
    open?.way === way && !open.bus.lost.aborted ? open : shared((stop) => openBy(way, stop), signal);
  const close = () => {
    idle?.cancel();
    open?.bus.close();
    open = undefined;
  };
  return {
    close,
    async use<T>(way: BusTransport, ask: (units: SliceUnits) => Promise<T>, signal: AbortSignal): Promise<T> {
      idle?.cancel();
      users++;
      try {
        const { units } = await opened(way, signal).catch((error: unknown) => {
          throw hasCode(error, "unavailable", "not_found") ? busUnreachable(error) : error;
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
export function busUnreachable(cause: unknown): BusUnreachable {
  return new BusUnreachable("unavailable", `the target's system bus at ${busSocket} is unreachable`, { cause });
}

/** Opens a connection to the bus. @throws permission_denied if graftlet's user may not connect; unavailable, not_found without
 *  a bus or relay. */
export async function openBusStreams(
  { host }: Pick<SystemdClientDeps, "host">,
  transport: BusTransport,
  signal: AbortSignal,
): Promise<BusStreams> {
  if (transport === "socket") {
    const socket = await host.dial({ unix: busSocket }, signal);
    return { from: socket, to: socket };
  }
  const relay = await host.spawn(command(bridge));
  relay.stderr.resume();
  relay.exited.catch(() => undefined);
  relay.stdout.once("close", () => relay.kill());
  return { from: relay.stdout, to: relay.stdin };
}
