import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError, throwIfAborted } from "../../../src/lib/errors.ts";
import type { Host, HostProcess } from "../../../src/seams/host.ts";
import { ProcessConnection } from "./connection.ts";
import type { Argv } from "../../../src/seams/command.ts";
import { forwardedAbort } from "../../../src/lib/service-group.ts";

const maxStderrBytes = 16 * 1024;

/** Starts a relay and waits until it is connected.
 *  @param connectedMessage its message on standard error once connected.
 *  @returns the relayed connection; destroying it ends the relay.
 *  @throws CodedError unavailable with the relay's message if it cannot connect; the signal's reason. */
export async function startRelay(
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
    const stderr = await stderrUntil(process, connectedMessage);
    throwIfAborted(signal);
    if (connectedMessage.test(stderr)) return new ProcessConnection(process, clock);
    throw new CodedError("unavailable", errorIn(stderr));
  } catch (error) {
    await process[Symbol.asyncDispose]();
    throw error;
  }
}

/** Standard error of a process until the awaited message or its end. Later output is dropped. */
function stderrUntil({ stderr }: HostProcess, awaited: RegExp): Promise<string> {
  let text = "";
  let settled = false;
  return new Promise((resolve) => {
    const settle = () => {
      settled = true;
      resolve(text);
    };
    stderr.on("data", (part: Buffer) => {
      if (settled) return;
      text += part.toString("latin1", 0, maxStderrBytes - text.length);
      if (text.length >= maxStderrBytes || awaited.test(text)) settle();
    });
    stderr.once("end", settle).once("error", settle).once("close", settle);
  });
}

/** The system's error message: the end of the last line that is not one of socat's notices or warnings. */
function errorIn(text: string): string {
  const lines = text
    .trim()
    .split("\n")
    .filter((line) => !/ socat\d*\[\d+\] [NWI] /.test(line));
  return (lines.at(-1)?.split(": ").at(-1) || "the relay ended").toLowerCase();
}
