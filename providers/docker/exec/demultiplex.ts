import type { Writable } from "node:stream";
import { CodedError, abortError, throwIfAborted } from "../../../src/lib/errors.ts";
import { createFrames } from "../client/frames.ts";

/** Receivers of a command's output; output without a receiver is dropped. */
export interface CommandOutputs {
  readonly stdout?: Writable | undefined;
  readonly stderr?: Writable | undefined;
}

const maxErrorBytes = 64 * 1024;

/** Passes on a command's output, unchanged, until it ends, with backpressure.
 *  @param from blocks of the connection: framed, or raw with a terminal.
 *  @throws the signal's reason; the connection's error; CodedError unknown with the daemon's message for a failure
 *  reported in the stream. */
export async function demultiplex(
  from: AsyncIterable<Buffer>,
  { tty, ...to }: CommandOutputs & { readonly tty: boolean },
  signal: AbortSignal,
): Promise<void> {
  // The client may disconnect, which closes its streams with an error.
  for (const output of [to.stdout, to.stderr]) output?.on("error", () => undefined);
  if (tty) {
    for await (const block of from) await write(to.stdout, block, signal);
    return;
  }
  const frames = createFrames();
  let errorText = "";
  for await (const block of from) {
    for (const { kind, bytes, last } of frames(block)) {
      if (kind === "stdout" || kind === "stderr") await write(to[kind], bytes, signal);
      if (kind !== "system") continue;
      if (errorText.length < maxErrorBytes) errorText += bytes.toString();
      if (last) throw new CodedError("unknown", errorText.trim());
    }
  }
}

/** Writes one piece and waits until the stream has room for the next. If the stream is closed, the piece is dropped. */
async function write(to: Writable | undefined, bytes: Buffer, signal: AbortSignal): Promise<void> {
  throwIfAborted(signal);
  if (!to || to.destroyed || bytes.length === 0 || to.write(bytes)) return;
  await untilWritable(to, signal);
}

function untilWritable(to: Writable, signal: AbortSignal): Promise<void> {
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
