import type { Readable } from "node:stream";
import { CodedError, abortError, hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import { BoundedBuffer } from "../../../src/lib/bounded-buffer.ts";
import { untilAborted } from "../../../src/lib/service-group.ts";
import type { Command, CommandResult } from "./command.ts";
import { type SpawnerOptions, createSpawner } from "./spawn.ts";

/** Runs a command in its own session; used for input that is too large for a pooled shell.
 *  @throws cancelled or deadline_exceeded like the signal (the command is killed), unavailable. */
export async function runInOwnSession(
  options: SpawnerOptions,
  { argv, stdin, limit }: Command,
  stop: AbortSignal,
): Promise<CommandResult> {
  const none = Buffer.alloc(0);
  try {
    await using child = await createSpawner(options)(argv, stop);
    const output = Promise.all([collect(child.stdout, limit), collect(child.stderr, limit)]);
    child.stdin.on("error", () => undefined);
    child.stdin.end(stdin);
    const [code, [stdout, stderr]] = await Promise.all([child.exited, untilAborted(output, stop)]);
    throwIfAborted(stop);
    return { code, stdout, stderr };
  } catch (error) {
    if (stop.aborted) throw abortError(stop);
    if (hasCode(error, "not_found")) return { code: undefined, stdout: none, stderr: none };
    throw error;
  }
}

function collect(stream: Readable, limit: number): Promise<Buffer> {
  const kept = new BoundedBuffer(limit);
  return new Promise((resolve, reject) => {
    stream.on("data", (chunk: Buffer) => void kept.add(chunk));
    stream.once("end", () => resolve(kept.bytes()));
    stream.once("error", (error) =>
      reject(error instanceof CodedError ? error : new CodedError("unavailable", error.message, { cause: error })),
    );
  });
}
