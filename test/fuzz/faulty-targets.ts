import type { Target } from "./target.ts";

const samples = [Buffer.from("a sample")];
const isMutated = (input: Buffer) => input.toString() !== "a sample";

/** Decoders with mistakes, which the fuzzer has to find. */
export const targets: readonly Target[] = [
  {
    name: "type error",
    samples,
    decode(input) {
      const value: unknown = isMutated(input) ? undefined : "";
      return (value as string).length;
    },
  },
  {
    name: "hang",
    samples,
    decode(input) {
      while (isMutated(input));
    },
  },
  { name: "memory", samples, decode: (input) => isMutated(input) && Buffer.alloc(128 * 2 ** 20, 1) },
  {
    name: "out of memory",
    samples,
    decode(input) {
      for (const all: unknown[] = []; isMutated(input); ) all.push(Array<number>(1_000_000).fill(0.5));
    },
  },
  {
    name: "uncaught",
    samples,
    async decode(input) {
      if (!isMutated(input)) return;
      process.nextTick(() => {
        throw new Error("nobody hears it");
      });
      await new Promise(setImmediate);
    },
  },
  {
    name: "sound",
    samples,
    decode(input) {
      if (isMutated(input)) throw new Error("not what was expected");
    },
  },
];
