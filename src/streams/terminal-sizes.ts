import type { Readable } from "node:stream";
import type { TerminalSize } from "../seams/runtime.ts";

/** Maximum length of an encoded size, bytes. */
const maxSizeLength = 1024;
/** Maximum input per turn, bytes; a client never sends that much at once. */
const maxChunkBytes = 1 << 16;
const maxDimension = 0xffff;

/** Parses terminal sizes from a client's resize stream: consecutive JSON objects, of which a slow reader gets only the newest. The
 *  iteration ends with the stream, successfully or not, and at invalid input.
 *  @see https://github.com/kubernetes/cri-streaming (handleResizeEvents) */
export function terminalSizes(stream: Readable): AsyncIterable<TerminalSize> {
  const latest = createLatest<TerminalSize>();
  let text = "";
  stream.on("data", function read(part: Buffer) {
    if (part.length > maxChunkBytes) return refuse();
    const [rest = "", ...sizes] = (text + part.toString("latin1")).split("}").reverse();
    for (const size of sizes.reverse().map((json) => parseSize(`${json}}`))) {
      if (!size) return refuse();
      latest.put(size);
    }
    text = rest;
    if (text.length > maxSizeLength) refuse();
    function refuse(): void {
      stream.off("data", read).resume();
      latest.end();
    }
  });
  stream.once("close", () => latest.end());
  stream.once("end", () => latest.end());
  return latest.values;
}

/** Yields no sizes: for a command without a terminal. */
export async function* noSizes(): AsyncGenerator<TerminalSize, void> {}

function parseSize(json: string): TerminalSize | undefined {
  try {
    const parsed = JSON.parse(json) as { Width?: unknown; Height?: unknown } | null;
    const { Width: width = 0, Height: height = 0 } = parsed ?? {};
    return isDimension(width) && isDimension(height) ? { width, height } : undefined;
  } catch {
    return undefined;
  }
}

function isDimension(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= maxDimension;
}

/** Holds one value; a newer one replaces an unread one. A value that is set before the end is still delivered. */
function createLatest<T>() {
  let next: { readonly value: T } | undefined;
  let ended = false;
  let changed = Promise.withResolvers<void>();
  async function* values(): AsyncGenerator<T, void> {
    for (;;) {
      const taken = next;
      next = undefined;
      if (taken) yield taken.value;
      else if (ended) return;
      else await changed.promise;
    }
  }
  const notify = () => {
    changed.resolve();
    changed = Promise.withResolvers<void>();
  };
  return {
    put(value: T): void {
      if (ended) return;
      next = { value };
      notify();
    },
    end(): void {
      ended = true;
      notify();
    },
    values: { [Symbol.asyncIterator]: values },
  };
}
