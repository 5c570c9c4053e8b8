import { readLines } from "../host/command-lines.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, hasCode } from "../lib/errors.ts";
import { untilAborted } from "../lib/service-group.ts";
import type { Host, HostProcess } from "../seams/host.ts";
import { relayPrograms } from "./relay-program.ts";

/** A datagram of a pod, or an answer to it. */
export interface Datagram {
  /** `address:port` of the destination in the cluster. */
  readonly to: string;
  /** `address:port` of the pod. */
  readonly pod: string;
  readonly data: Buffer;
}

export interface RelayEvents {
  datagram(datagram: Datagram): void;
  /** The rules on the target are gone: somebody has flushed them. */
  lost(): void;
}

/** The relay on the target, while it runs. */
export interface Relay {
  /** Its port for connections. */
  readonly port: number;
  /** Names the pods whose packets alone it takes. */
  allow(pods: readonly string[]): void;
  /** Names the destinations of datagrams, the most wanted first. @returns the relay's port for each, as many as there are ports. */
  listen(udp: readonly string[]): Promise<readonly (readonly [to: string, port: number])[]>;
  answer(datagram: Datagram): void;
  /** Settles when it has ended, with what it said. */
  readonly ended: Promise<string>;
}

/** Time for the program to say that it listens, milliseconds. */
const startMs = 15_000;
/** Longest line of the program, bytes: a datagram in hexadecimal digits, with its addresses. */
const maxLineBytes = 2 * (64 << 10) + 256;
/** Bytes that may wait to be sent to the relay; beyond that datagrams are dropped, as on any full way. */
const mostWaiting = 1024 * 1024;

/** Starts the relay by the first interpreter that the target has. It ends with the signal.
 *  @throws not_found when the target has none; failed_precondition in the program's words. */
export async function startRelay(
  { host, clock }: { readonly host: Pick<Host, "spawn">; readonly clock: Pick<Clock, "within"> },
  place: { readonly link: string; readonly check: readonly string[] },
  events: RelayEvents,
  signal: AbortSignal,
): Promise<Relay> {
  const program = await spawnFirst(host, relayPrograms(place.link, place.check), signal);
  const { stdin } = program;
  // It shows in what the program says, or in its end.
  stdin.on("error", () => undefined);
  const ready = Promise.withResolvers<number>();
  let listening: ((ports: readonly (readonly [string, number])[]) => void) | undefined;
  const hear = (line: string): void => {
    const [word, ...rest] = line.split(" ");
    if (word === "ready") ready.resolve(Number(rest[0]));
    else if (word === "lost") events.lost();
    else if (word === "udp") listening?.(rest.map(portOf));
    else if (word === "d") {
      const [to = "", pod = "", hex = ""] = rest;
      events.datagram({ to, pod, data: Buffer.from(hex, "hex") });
    }
  };
  const ended = readLines(program, hear, signal, maxLineBytes).catch((error: unknown) => {
    if (signal.aborted || hasCode(error, "unavailable")) return "";
    throw error;
  });
  ended.catch(() => undefined);
  const early = ended.then((said): never => {
    throw new CodedError("failed_precondition", `the relay on the target has ended: ${said || "without a word"}`);
  });
  early.catch(() => undefined);
  const told = (line: string) => void stdin.write(`${line}\n`);
  const port = await untilAborted(Promise.race([ready.promise, early]), clock.within(startMs, signal));
  return {
    port,
    ended,
    allow: (pods) => told(["pods", ...pods].join(" ")),
    async listen(udp) {
      const answered = Promise.withResolvers<readonly (readonly [string, number])[]>();
      listening = answered.resolve;
      told(["udp", ...udp].join(" "));
      return Promise.race([answered.promise, early]);
    },
    answer({ to, pod, data }) {
      if (stdin.writableLength < mostWaiting) told(`d ${to} ${pod} ${data.toString("hex")}`);
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

function portOf(text: string): readonly [to: string, port: number] {
  const [to = "", port] = text.split("=");
  return [to, Number(port)];
}
