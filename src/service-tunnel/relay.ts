import { readLines } from "../host/command-lines.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, hasCode } from "../lib/errors.ts";
import { untilAborted } from "../lib/service-group.ts";
import type { Host, HostProcess } from "../seams/host.ts";
import { relayPrograms } from "./relay-program.ts";

/** A datagram of a pod, or a reply to it. */
export interface Datagram {
  /** `address:port` of the destination in the cluster. */
  readonly to: string;
  /** `address:port` of the pod. */
  readonly pod: string;
  readonly data: Buffer;
}

export interface RelayEvents {
  onDatagram(datagram: Datagram): void;
  /** The relay refuses further connections of a pod, given by the address that the target reports. */
  onFull(pod: string): void;
  /** The redirect rules on the target are gone, for example flushed. */
  onRulesLost(): void;
}

/** A running relay on the target. */
export interface Relay {
  /** The relay's port for TCP connections. */
  readonly port: number;
  /** Sets the pods whose traffic is accepted. */
  allow(pods: readonly string[]): void;
  /** Sets the UDP destinations, the most important first. @returns the relay's port for each, as far as ports are available. */
  listen(udp: readonly string[]): Promise<readonly (readonly [to: string, port: number])[]>;
  reply(datagram: Datagram): void;
  /** Resolves with the program's output when it has ended. */
  readonly ended: Promise<string>;
}

/** Time limit for the program to start listening, and to open UDP ports, milliseconds. */
const startTimeoutMs = 15_000;
/** Maximum length of the hex payload: the largest UDP datagram over IPv4. */
const maxHexLength = 2 * 65_507;
/** Maximum length of a line of the program, bytes: a datagram with its addresses. */
const maxLineBytes = maxHexLength + 256;
/** Maximum number of bytes queued for the relay; beyond that datagrams are dropped, as on any congested network. */
const maxQueuedBytes = 1024 * 1024;

/** Starts the relay with the first interpreter that the target has; it ends with the signal.
 *  @throws not_found when the target has none; failed_precondition with the program's output. */
export async function startRelay(
  { host, clock }: { readonly host: Pick<Host, "spawn">; readonly clock: Pick<Clock, "within"> },
  place: { readonly link: string; readonly check: readonly string[] },
  events: RelayEvents,
  signal: AbortSignal,
): Promise<Relay> {
  const program = await spawnFirst(host, relayPrograms(place.link, place.check), signal);
  const { stdin } = program;
  // A write error shows in the program's output or exit.
  stdin.on("error", () => undefined);
  const ready = Promise.withResolvers<number>();
  let listening: ((ports: readonly (readonly [string, number])[]) => void) | undefined;
  const onLine = (line: string): void => {
    const [word, ...rest] = line.split(" ");
    if (word === "ready" && isPort(rest[0])) ready.resolve(Number(rest[0]));
    else if (word === "lost") events.onRulesLost();
    else if (word === "full") events.onFull(rest[0] ?? "");
    else if (word === "udp") listening?.(rest.map(portOf));
    else if (word === "d") {
      const [to = "", pod = "", hex = ""] = rest;
      if (hex.length <= maxHexLength) events.onDatagram({ to, pod, data: Buffer.from(hex, "hex") });
    }
  };
  const ended = readLines(program, onLine, signal, maxLineBytes).catch((error: unknown) => {
    if (signal.aborted || hasCode(error, "unavailable")) return "";
    throw error;
  });
  ended.catch(() => undefined);
  const early = ended.then((output): never => {
    throw new CodedError("failed_precondition", `the relay on the target exited: ${output || "no output"}`);
  });
  early.catch(() => undefined);
  const writeLine = (line: string) => void stdin.write(`${line}\n`);
  const port = await untilAborted(Promise.race([ready.promise, early]), clock.within(startTimeoutMs, signal));
  return {
    port,
    ended,
    allow: (pods) => writeLine(["pods", ...pods].join(" ")),
    async listen(udp) {
      const answered = Promise.withResolvers<readonly (readonly [string, number])[]>();
      listening = answered.resolve;
      writeLine(["udp", ...udp].join(" "));
      const ports = await untilAborted(Promise.race([answered.promise, early]), clock.within(startTimeoutMs, signal));
      const wanted = new Set(udp);
      return ports.filter(([to, at]) => wanted.has(to) && isPort(`${at}`));
    },
    reply({ to, pod, data }) {
      if (stdin.writableLength < maxQueuedBytes) writeLine(`d ${to} ${pod} ${data.toString("hex")}`);
    },
  };
}

async function spawnFirst(
  { spawn }: Pick<Host, "spawn">,
  programs: ReturnType<typeof relayPrograms>,
  signal: AbortSignal,
): Promise<HostProcess> {
  for (const { argv } of programs) {
    try {
      return await spawn(argv, signal);
    } catch (error) {
      if (!hasCode(error, "not_found")) throw error;
    }
  }
  const names = programs.map(({ interpreter }) => interpreter).join(" or ");
  throw new CodedError("not_found", `the target has no ${names}`);
}

/** True for a port that only root can bind. */
function isPort(text: string | undefined): boolean {
  return text !== undefined && /^[1-9][0-9]{0,3}$/.test(text) && Number(text) < 1024;
}

function portOf(text: string): readonly [to: string, port: number] {
  const [to = "", port] = text.split("=");
  return [to, Number(port)];
}
