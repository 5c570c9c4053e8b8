import type { Readable } from "node:stream";

/** A promise that must settle: soon, on a machine that is not busy. */
export async function within<T>(work: Promise<T>, ms = 30_000): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error(`not settled within ${ms} ms`)), ms);
  try {
    return await Promise.race([work, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** All that a stream says until its end; unlike node:stream/consumers it leaves the other half of a connection open. */
export function allOf(stream: Readable): Promise<string> {
  const parts: Buffer[] = [];
  return new Promise((resolve, reject) => {
    stream.on("data", (part: Buffer) => parts.push(part));
    stream.once("end", () => resolve(Buffer.concat(parts).toString()));
    stream.once("error", reject);
  });
}
