import { messageOf } from "../../../src/lib/errors.ts";
import type { TerminalSize } from "../../../src/seams/runtime.ts";
import type { DockerParts } from "../parts.ts";

/** Applies a client's terminal sizes until there are no more or the signal aborts. Never throws: a failed resize (the
 *  command has just ended) has no effect.
 *  @param path of the daemon's resize call. */
export async function applyTerminalSizes(
  { docker, log }: DockerParts,
  path: string,
  sizes: AsyncIterable<TerminalSize>,
  signal: AbortSignal,
): Promise<void> {
  const { promise: stopped, resolve: stop } = Promise.withResolvers<undefined>();
  signal.addEventListener("abort", () => stop(undefined), { once: true });
  const iterator = sizes[Symbol.asyncIterator]();
  while (!signal.aborted) {
    const next = await Promise.race([iterator.next(), stopped]);
    if (!next || next.done) return;
    const { width, height } = next.value;
    await docker
      .request({ method: "POST", path, query: { w: width, h: height } }, signal)
      .catch((error: unknown) => log.debug({ path, why: messageOf(error) }, "cannot set terminal size"));
  }
}
