import type { Readable } from "node:stream";

/** Columns and rows. */
export interface TerminalSize {
  readonly width: number;
  readonly height: number;
}

/** Maximum length of an encoded size, bytes. */
const longestSize = 1024;
/** Maximum input per turn, bytes: a terminal never sends more at once. */
const longestPart = 1 << 16;
const largest = 0xffff;

/** Parses terminal sizes from a client's resize stream: consecutive JSON objects, of which a slow reader gets only the newest. The
 *  iteration ends with the stream, successfully or not, and at invalid input.
 *  @see https://github.com/kubernetes/cri-streaming (handleResizeEvents) */
export function terminalSizes(stream: Readable): AsyncIterable<TerminalSize> {
  const latest = createLatest<TerminalSize>();
  let text = "";
  stream.on("data", function read(part: Buffer) {
    if (part.length > longestPart) return refuse();
    const [rest = "", ...sizes] = (text + part.toString("latin1")).split("}").reverse();
    for (const size of sizes.reverse().map((json) => sizeOf(`${json}}`))) {
      if (!size) return refuse();
      latest.put(size);
    }
    text = rest;
    if (text.length > longestSize) refuse();
    function refuse(): void {
      stream.off("data", read).resume();
      latest.end();
    }
  });
  stream.once("close", () => latest.end());
  stream.once("end", () => latest.end());
  return latest.values;
}

/** Sizes of a command without a terminal: none. */
export async function* noSizes(): AsyncGenerator<TerminalSize, void> {}

function sizeOf(json: string): TerminalSize | undefined {
  try {
    const parsed = JSON.parse(json) as { Width?: unknown; Height?: unknown } | null;
    const { Width: width = 0, Height: height = 0 } = parsed ?? {};
    return isDimension(width) && isDimension(height) ? { width, height } : undefined;
  } catch {
    return undefined;
  }
}

function isDimension(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= largest;
}

interface Latest<T> {
  put(value: T): void;
  end(): void;
  readonly values: AsyncIterable<T>;
}

/** Holds one value; a newer one replaces an unread one. A value set before the end is still delivered. */
function createLatest<T>(): Latest<T> {
  let next: { readonly value: T } | undefined;
  let ended = false;
  let news = Promise.withResolvers<void>();
  async function* values(): AsyncGenerator<T, void> {
    for (;;) {
      const taken = next;
      next = undefined;
      if (taken) yield taken.value;
      else if (ended) return;
      else await news.promise;
    }
  }
  const tell = () => {
    news.resolve();
    news = Promise.withResolvers<void>();
  };
  return {
    put(value) {
      if (ended) return;
      next = { value };
      tell();
    },
    end() {
      ended = true;
      tell();
    },
    values: { [Symbol.asyncIterator]: values },
  };
}
