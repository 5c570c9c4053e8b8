import type { Clock } from "../../lib/clock.ts";
import { CodedError, hasCode, throwIfAborted } from "../../lib/errors.ts";
import { createSharedPromise } from "../../lib/single-flight.ts";
import type { Host } from "../../seams/host.ts";
import { type SystemdBus, connectBus } from "./bus.ts";
import { busSlices, versionOf } from "./bus-slices.ts";
import type { BusStreams } from "./bus-connection.ts";
import type { SliceUnits, UnitProperty } from "./slices.ts";
import { command, type Option } from "../../seams/command.ts";

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

/** Exit codes of systemctl; denials by polkit can be recognized by the text only. @see
 *  https://www.freedesktop.org/software/systemd/man/latest/systemctl.html */
const [denied, notLoaded] = [4, 5];
/** Properties that are set automatically, or only at start. */
const notAssigned = new Set(["Description", "Wants", "DefaultDependencies"]);

/** A call of systemctl. Slice names contain configuration values and pod UIDs, so they are passed as operands. */
interface Call {
  readonly verb: readonly string[];
  readonly options?: readonly Option[];
  readonly operands?: readonly string[];
}

const setProperty = (operands: readonly string[]): Call => ({
  verb: ["set-property"],
  options: ["--runtime"],
  operands,
});

/** Manages slices with systemctl, for a target whose bus is unreachable. A slice is started by name, and gets its properties
 *  afterwards. */
function commandSlices(host: Pick<Host, "run">): SliceUnits {
  const run = async ({ verb, options = [], operands = [] }: Call, signal: AbortSignal) => {
    try {
      return await host.run(command(["systemctl", "--no-ask-password", ...verb], options, operands), { signal });
    } catch (error) {
      if (!hasCode(error, "not_found")) throw error;
      throw new CodedError("unavailable", "the target has neither a system bus nor systemctl", { cause: error });
    }
  };
  const must = async (call: Call, signal: AbortSignal, passes: readonly number[] = [0]) => {
    const { code, stdout, stderr } = await run(call, signal);
    if (passes.includes(code)) return { code, stdout };
    const output = stderr.trim().split("\n")[0] ?? "";
    const mayNot = code === denied || /access denied|authentication required|permission denied/i.test(stderr);
    throw new CodedError(
      mayNot ? "permission_denied" : "unavailable",
      `systemctl ${[...call.verb, ...(call.options ?? []), ...(call.operands ?? [])].join(" ")}: ${output}`,
    );
  };
  const set: SliceUnits["set"] = async (slice, properties, signal) => {
    const assignments = properties.filter(({ name }) => !notAssigned.has(name)).map(assignment);
    if (assignments.length > 0) await must(setProperty([slice, ...assignments]), signal);
  };
  return {
    version: async (signal) =>
      versionOf((await must({ verb: [], options: ["--version"] }, signal)).stdout.replace(/^systemd /, "")),
    async start(slice, properties, signal) {
      const first = await must({ verb: ["start"], operands: [slice] }, signal, [0, notLoaded]);
      if (first.code === notLoaded) {
        // systemd still remembers the removed unit file of a transient slice that was started over the bus.
        await must({ verb: ["daemon-reload"] }, signal);
        await must({ verb: ["start"], operands: [slice] }, signal);
      }
      await set(slice, properties, signal);
      return true;
    },
    set,
    async stop(slice, signal) {
      await must({ verb: ["stop"], operands: [slice] }, signal, [0, notLoaded]);
      await run({ verb: ["reset-failed"], operands: [slice] }, signal);
      // Properties set by systemctl outlive a slice, and would apply to the next one of the same name.
      await run({ verb: ["revert"], options: ["--no-reload"], operands: [slice] }, signal);
    },
  };
}

/** Formats a property for systemctl: times with units, bit masks as lists.
 *  @see https://www.freedesktop.org/software/systemd/man/latest/systemd.resource-control.html */
export function assignment({ name, value }: UnitProperty): string {
  const isInfinite = value === 2n ** 64n - 1n;
  switch (name) {
    case "CPUQuotaPerSecUSec":
      return `CPUQuota=${isInfinite ? "" : `${Number(value) / 10_000}%`}`;
    case "CPUQuotaPeriodUSec":
      return `CPUQuotaPeriodSec=${String(value)}us`;
    default:
      if (value instanceof Uint8Array) return `${name}=${listed(value)}`;
      return `${name}=${isInfinite ? "infinity" : String(value)}`;
  }
}

function listed(bits: Uint8Array): string {
  const cpus = [...bits].flatMap((byte, at) =>
    [0, 1, 2, 3, 4, 5, 6, 7].filter((bit) => (byte >> bit) & 1).map((bit) => at * 8 + bit),
  );
  return cpus.join(",");
}
