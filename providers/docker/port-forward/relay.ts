import type { Duplex } from "node:stream";
import type { ContainerInspectInfo } from "dockerode";
import { CodedError, abortError, hasCode, messageOf, throwIfAborted } from "../../../src/lib/errors.ts";
import type { Host, HostProcess } from "../../../src/seams/host.ts";
import { type ForwardSlots, createForwardSlots } from "../../../src/streams/forward-slots.ts";
import type { DockerParts } from "../parts.ts";
import { ProcessConnection } from "./connection.ts";
import { type PortForwardProgram, findProgramScript, relayProgram } from "./programs.ts";
import { sandboxType } from "../container/names.ts";
import { inspectRunning } from "../container/running.ts";
import { type Argv, script, wrapped } from "../../../src/seams/command.ts";
import type { Clock } from "../../../src/lib/clock.ts";
import { forwardedAbort } from "../../../src/lib/runnables.ts";

/** Connects to a port of a sandbox.
 *  @throws CodedError unavailable with a message for users if nothing listens; resource_exhausted if there are too many connections. */
export type ConnectToPort = (sandboxId: string, port: number, signal: AbortSignal) => Promise<Duplex>;

/** Addresses of `localhost`, in containerd's order. */
const loopback = [
  { family: "IPv4", address: "127.0.0.1" },
  { family: "IPv6", address: "::1" },
];

/** Connects to ports in pods, with a limited number of connections. It uses a relay in the pod's network namespace, so that
 *  servers on its loopback are reachable, or else the pod's address, if the target has no relay program or does not permit
 *  entering the namespace. For pods on the host network it uses the target's own loopback. */
export function createPortRelay(parts: DockerParts): ConnectToPort {
  const { host, clock, log } = parts;
  const forUsers = host.forUsers ?? host;
  let program: PortForwardProgram | undefined;
  let hasWarned = false;

  async function programFor(pid: number, signal: AbortSignal): Promise<PortForwardProgram | undefined> {
    if (program) return program;
    try {
      const { stdout, stderr } = await host.run(inNetworkNamespace(pid, script(findProgramScript())), { signal });
      program = relayProgram(stdout);
      if (!program) warnOnce(stderr.trim() || "socat, perl and python3 are all missing: install socat");
    } catch (error) {
      if (!hasCode(error, "not_found")) throw error;
      warnOnce("nsenter is missing: install util-linux");
    }
    return program;
  }

  function warnOnce(why: string): void {
    if (!hasWarned)
      log.warn(
        { why },
        "port-forward cannot enter pods' network namespaces on this target; servers listening on 127.0.0.1 are unreachable",
      );
    hasWarned = true;
  }

  const connect: ConnectToPort = async (sandboxId, port, signal) => {
    const sandbox = await inspectRunning(parts, sandboxId, signal, sandboxType);
    if (sandbox.HostConfig.NetworkMode === "host")
      return dialFirst("on the node", port, (address) => dial(forUsers, address, port, signal), signal);
    const { Pid: pid } = sandbox.State;
    const program = await programFor(pid, signal);
    if (!program) return dial(forUsers, podAddress(sandbox), port, signal);
    const enter = (address: string) =>
      startPortForwardRelay(
        { host: forUsers, clock },
        inNetworkNamespace(pid, program.argv(address, port)),
        program.connected,
        signal,
      );
    return dialFirst(`inside the network namespace of sandbox ${sandboxId}`, port, enter, signal);
  };
  return limitConnections(connect, createForwardSlots(parts.clock));
}

/** Limits the number of connections; each occupies its slot until its process has ended. */
function limitConnections(connect: ConnectToPort, slots: ForwardSlots): ConnectToPort {
  return async (sandboxId, port, signal) => {
    const acquired = slots.acquire(sandboxId, 1);
    if (acquired.kind === "full") throw new CodedError("resource_exhausted", acquired.text);
    const { slot } = acquired;
    try {
      const connection = await connect(sandboxId, port, signal);
      const freed = () => slot.release(0);
      if (connection instanceof ProcessConnection) void connection.ended.then(freed);
      else connection.once("close", freed);
      return connection;
    } catch (error) {
      slot.release(0);
      throw error;
    }
  };
}

/** Connects to an address. @throws CodedError unavailable with the system's message; hosts use that code for a refused
 *  connection. */
async function dial(host: Pick<Host, "dial">, address: string, port: number, signal: AbortSignal): Promise<Duplex> {
  try {
    return await host.dial({ host: address, port }, signal);
  } catch (error) {
    if (!hasCode(error, "unavailable")) throw error;
    throw new CodedError("unavailable", "connection refused", { cause: error });
  }
}

function inNetworkNamespace(pid: number, argv: Argv): Argv {
  return wrapped(["nsenter", "--target", String(pid), "--net", "--"], argv);
}

/** Connects to the first loopback address that accepts the connection. @throws CodedError unavailable with containerd's
 *  message. */
async function dialFirst(
  where: string,
  port: number,
  connect: (address: string) => Promise<Duplex>,
  signal: AbortSignal,
): Promise<Duplex> {
  const failures: string[] = [];
  for (const { family, address } of loopback) {
    try {
      return await connect(address);
    } catch (error) {
      if (signal.aborted) throw abortError(signal);
      if (!hasCode(error, "unavailable")) throw error;
      failures.push(`${family}: ${messageOf(error)}`);
    }
  }
  throw new CodedError("unavailable", `failed to connect to localhost:${port} ${where}, ${failures.join(", ")}`);
}

function podAddress({ NetworkSettings }: ContainerInspectInfo): string {
  const address = Object.values(NetworkSettings.Networks ?? {}).find((network) => network.IPAddress)?.IPAddress;
  if (!address) throw new CodedError("failed_precondition", "the pod has no IP address of its own");
  return address;
}

const maxStderrBytes = 16 * 1024;

/** Starts a relay and waits until it is connected.
 *  @param connectedMessage matches the relay's message on standard error once it is connected.
 *  @returns the relayed connection; destroying it ends the relay.
 *  @throws CodedError unavailable with the relay's message if it cannot connect; the signal's reason. */
export async function startPortForwardRelay(
  { host, clock }: { readonly host: Pick<Host, "spawn">; readonly clock: Clock },
  argv: Argv,
  connectedMessage: RegExp,
  signal: AbortSignal,
): Promise<ProcessConnection> {
  // A connected relay outlives the signal: it may still have data to forward.
  using waiting = forwardedAbort(signal);
  const process = await host.spawn(argv, waiting.signal);
  return await untilConnected(process, connectedMessage, clock, signal);
}

async function untilConnected(
  process: HostProcess,
  connectedMessage: RegExp,
  clock: Clock,
  signal: AbortSignal,
): Promise<ProcessConnection> {
  try {
    const { first, total } = messagesOf(process, connectedMessage);
    const stderr = await first;
    throwIfAborted(signal);
    if (connectedMessage.test(stderr)) return new ProcessConnection(process, clock, total);
    throw new CodedError("unavailable", errorIn(stderr));
  } catch (error) {
    await process[Symbol.asyncDispose]();
    throw error;
  }
}

/** Matches a relay's message that the server has ended, and how many bytes it has sent in all. */
const endedMessage = /^ended (\d+)\n/m;

/** A relay's messages on standard error. */
interface RelayMessages {
  /** All of them until the awaited one, or until standard error ended. */
  readonly first: Promise<string>;
  /** The number of bytes that the server has sent, once it has ended; pending if the relay does not tell. */
  readonly total: Promise<number>;
}

/** Reads standard error of a process; what exceeds the limit is dropped. */
function messagesOf({ stderr }: HostProcess, awaited: RegExp): RelayMessages {
  const first = Promise.withResolvers<string>();
  const total = Promise.withResolvers<number>();
  let text = "";
  const settle = () => first.resolve(text);
  stderr.on("data", (part: Buffer) => {
    text += part.toString("latin1", 0, maxStderrBytes - text.length);
    if (text.length >= maxStderrBytes || awaited.test(text)) settle();
    const bytes = endedMessage.exec(text)?.[1];
    if (bytes !== undefined) total.resolve(Number(bytes));
  });
  stderr.once("end", settle).once("error", settle).once("close", settle);
  return { first: first.promise, total: total.promise };
}

/** Returns the system's error message: the end of the last line that is not a notice or warning of socat. */
function errorIn(text: string): string {
  const lines = text
    .trim()
    .split("\n")
    .filter((line) => !/ socat\d*\[\d+\] [NWI] /.test(line));
  return (lines.at(-1)?.split(": ").at(-1) || "the relay ended").toLowerCase();
}
