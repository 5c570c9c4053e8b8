import * as fsp from "node:fs/promises";
import { join } from "node:path";
import { codedError } from "./errors.ts";

/** Watches a path on this machine. @see Host.watch */
export async function* watchLocal(path: string, signal: AbortSignal): AsyncGenerator<string> {
  try {
    for await (const { filename } of fsp.watch(path, { signal, persistent: false }))
      yield filename ? join(path, filename) : path;
  } catch (error) {
    if (!signal.aborted) throw codedError(path, error);
  }
}
