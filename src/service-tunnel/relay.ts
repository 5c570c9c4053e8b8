import { readLines } from "../host/command-lines.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, hasCode } from "../lib/errors.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { Host, HostProcess } from "../seams/host.ts";
import { programText } from "../lib/program-text.ts";
import { type Argv, interpreted } from "../seams/command.ts";

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
  /** Called when the relay refuses further connections of a pod. @param pod the pod's address, as reported by the target. */
  onFull(pod: string): void;
  /** Called when the redirect rules on the target are gone, for example flushed. */
  onRulesLost(): void;
}

/** A running relay on the target. */
export type Relay = Awaited<ReturnType<typeof startTunnelRelay>>;

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
export async function startTunnelRelay(
  { host, clock }: { readonly host: Pick<Host, "spawn">; readonly clock: Pick<Clock, "within"> },
  place: { readonly link: string; readonly check: readonly string[] },
  events: RelayEvents,
  signal: AbortSignal,
) {
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
    /** The relay's port for TCP connections. */
    port,
    /** Resolves with the program's output when it has ended. */
    ended,
    /** Sets the pods whose traffic is accepted. */
    allow: (pods: readonly string[]): void => writeLine(["pods", ...pods].join(" ")),
    /** Sets the UDP destinations, the most important first. @returns the relay's port for each, as far as ports are available. */
    async listen(udp: readonly string[]): Promise<readonly (readonly [to: string, port: number])[]> {
      const answered = Promise.withResolvers<readonly (readonly [string, number])[]>();
      listening = answered.resolve;
      writeLine(["udp", ...udp].join(" "));
      const ports = await untilAborted(Promise.race([answered.promise, early]), clock.within(startTimeoutMs, signal));
      const wanted = new Set(udp);
      return ports.filter(([to, at]) => wanted.has(to) && isPort(`${at}`));
    },
    reply({ to, pod, data }: Datagram): void {
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

// Relay programs on the target, between pods and the link; the text of each is an argument of its interpreter. Arguments of the
// program: the socket that is forwarded to graftlet, and the command that fails once the redirect rules are gone.
//
// The firewall redirects a pod's connection to the relay, and the kernel knows its original destination. The program opens a
// connection to graftlet, sends `from-address from-port to-address to-port` in a line and joins the two; the first byte of the
// reply says that graftlet is connected to the destination. Without that byte the pod's connection is reset, as if it were
// refused. There is one UDP socket per destination, since the kernel does not report a datagram's original destination; datagrams
// are passed on standard output and input as `d TO FROM HEX`. Lines of standard input: `pods ADDRESS…`, the only sources that are
// accepted; `udp TO…`, the destinations of datagrams, answered by `udp TO=PORT…` for as many as there are ports; and `d TO FROM
// HEX`, a reply. Other lines of standard output: `ready PORT`, `lost` when the rules are gone, and `full ADDRESS` when further
// connections of a pod are refused.
//
// Each connection needs two file descriptors. The program raises its limit to the session's hard limit (RLIMIT_NOFILE) and
// reserves some for UDP ports and the command. A pod may open another connection while it has fewer connections than are still
// free, so that one pod cannot use all of them.
//
// Ports are below 1024, so that only root can bind them when the program has ended and the rules remain.

/** Perl's core modules cannot change resource limits, so a shell raises them. */
const perlWithRaisedLimit = String.raw`exec "sh", "-c", 'ulimit -n "$(ulimit -Hn)" 2>/dev/null; exec "$@"', "sh", $^X, "-e", @ARGV`;

/** An interpreter, and the command line that runs the relay with it. */
interface RelayProgram {
  readonly interpreter: string;
  readonly argv: Argv;
  /** Succeeds if the target has the interpreter. */
  readonly probe: Argv;
}

/** Command lines of the relay, in order of preference.
 *  @param link path of the socket that is forwarded to graftlet.
 *  @param check command that fails once the rules are gone. */
export function relayPrograms(link: string, check: readonly string[]): readonly RelayProgram[] {
  const probe = (interpreter: "python3" | "perl") => ({ interpreter, probe: interpreted(interpreter, "") });
  return [
    { ...probe("python3"), argv: interpreted("python3", programText("src/service-tunnel/relay.py"), link, ...check) },
    {
      ...probe("perl"),
      argv: interpreted("perl", perlWithRaisedLimit, programText("src/service-tunnel/relay.pl"), "--", link, ...check),
    },
  ];
}
