import type { Writable } from "node:stream";
import { CodedError, abortError, throwIfAborted } from "../../../src/lib/errors.ts";
import { createFrames } from "../client/frames.ts";

/** Where a command's output goes; what nobody asked for is dropped. */
export interface Outputs {
  readonly stdout?: Writable | undefined;
  readonly stderr?: Writable | undefined;
}

const maxComplaintBytes = 64 * 1024;

/** Hands the output of a command on, byte by byte as it was written, until it ends; reads no faster than the outputs take.
 *  @param from blocks of the connection: framed, or with a terminal as the terminal shows them.
 *  @throws the signal's reason; what the connection failed with; CodedError unknown with the daemon's words when it tells of
 *  a failure in the stream itself. */
export async function demultiplex(
  from: AsyncIterable<Buffer>,
  { tty, ...to }: Outputs & { readonly tty: boolean },
  signal: AbortSignal,
): Promise<void> {
  if (tty) {
    for await (const block of from) await write(to.stdout, block, signal);
    return;
  }
  const frames = createFrames();
  let complaint = "";
  for await (const block of from) {
    for (const { kind, bytes, last } of frames(block)) {
      if (kind === "stdout" || kind === "stderr") await write(to[kind], bytes, signal);
      if (kind !== "system") continue;
      if (complaint.length < maxComplaintBytes) complaint += bytes.toString();
      if (last) throw new CodedError("unknown", complaint.trim());
    }
  }
}

/** Writes one piece, and waits until there is room for the next. What is closed takes nothing more. */
async function write(to: Writable | undefined, bytes: Buffer, signal: AbortSignal): Promise<void> {
  throwIfAborted(signal);
  if (!to || to.destroyed || bytes.length === 0 || to.write(bytes)) return;
  await roomIn(to, signal);
}

function roomIn(to: Writable, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (outcome: () => void) => () => {
      to.off("drain", onRoom).off("close", onRoom);
      signal.removeEventListener("abort", onAbort);
      outcome();
    };
    const onRoom = settle(resolve);
    const onAbort = settle(() => reject(abortError(signal)));
    to.once("drain", onRoom).once("close", onRoom);
    signal.addEventListener("abort", onAbort, { once: true });
  });
}
