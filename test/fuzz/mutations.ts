import fc from "fast-check";

/** A change of a sample: what is done, where (a share of its length), and with what. */
interface Mutation {
  readonly does: (typeof kinds)[number];
  readonly at: number;
  readonly length: number;
  readonly value: number;
}

const kinds = ["flip", "set", "insert", "delete", "repeat", "length32", "length64", "varint", "splice", "cut"] as const;
/** Values at which decoders go wrong. */
const edges = [0, 1, 2, 0x0a, 0x20, 0x22, 0x2c, 0x3a, 0x5b, 0x7b, 0x7f, 0x80, 0xfe, 0xff];
const lengths = [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x10000, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
/** Longest input, bytes. */
export const maxInputBytes = 64 * 1024;

const mutation: fc.Arbitrary<Mutation> = fc.record({
  does: fc.constantFrom(...kinds),
  at: fc.double({ min: 0, max: 1, noNaN: true }),
  length: fc.integer({ min: 1, max: 64 }),
  value: fc.nat(0xffff),
});

/** Inputs that are valid samples with some changes. fast-check finds a failing one with the fewest changes. */
export function mutated(samples: readonly Buffer[]): fc.Arbitrary<Buffer> {
  return fc
    .tuple(fc.constantFrom(...samples), fc.array(mutation, { maxLength: 12 }), fc.constantFrom(...samples))
    .map(([sample, mutations, other]) => mutations.reduce((bytes, one) => changed(bytes, one, other), sample));
}

function changed(bytes: Buffer, { does, at, length, value }: Mutation, other: Buffer): Buffer {
  const from = Math.min(bytes.length, Math.floor(at * (bytes.length + 1)));
  const to = Math.min(bytes.length, from + length);
  const join = (...parts: readonly Uint8Array[]) => Buffer.concat(parts).subarray(0, maxInputBytes);
  const replaced = (part: Buffer) => join(bytes.subarray(0, from), part, bytes.subarray(from + part.length));
  switch (does) {
    case "flip":
      return replaced(Buffer.of((bytes[from] ?? 0) ^ (1 << (value & 7))));
    case "set":
      return replaced(Buffer.of(edges[value % edges.length] ?? 0));
    case "insert":
      return join(bytes.subarray(0, from), Buffer.alloc(length, edges[value % edges.length]), bytes.subarray(from));
    case "delete":
      return join(bytes.subarray(0, from), bytes.subarray(to));
    case "repeat": {
      const times = 1 + (value % 2048);
      return join(
        bytes.subarray(0, from),
        ...Array.from({ length: times }, () => bytes.subarray(from, to)),
        bytes.subarray(to),
      );
    }
    case "length32": {
      const word = Buffer.alloc(4);
      word.writeUInt32BE(lengths[value % lengths.length] ?? 0);
      return replaced(value & 0x8000 ? word.reverse() : word);
    }
    case "length64":
      return replaced(Buffer.alloc(8, value & 1 ? 0xff : 0));
    case "varint":
      return replaced(Buffer.concat([Buffer.alloc(value % 10, 0xff), Buffer.of(value & 0x7f)]));
    case "splice":
      return join(bytes.subarray(0, from), other.subarray(Math.floor(at * other.length)));
    case "cut":
      return bytes.subarray(0, from);
  }
}
