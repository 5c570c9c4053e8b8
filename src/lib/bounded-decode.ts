import { BinaryReader } from "@bufbuild/protobuf/wire";
import { CodedError } from "./errors.ts";
import type { TargetBudget } from "./target-budget.ts";

// A message of a few bytes an entry becomes objects of hundreds of bytes each: a limit of its length is no limit of its memory.

/** Bounds of the answers of one peer. */
export interface DecodeLimits {
  /** Longest message, bytes on the wire. */
  readonly maxMessageBytes: number;
  /** Most memory that one decoded message may take, estimated bytes. */
  readonly maxDecodedBytes: number;
}

/** Of a container runtime: the kubelet's length. Statistics of 500 pods with 4 containers each take 41 MiB, other lists less. */
export const runtimeLimits: DecodeLimits = { maxMessageBytes: 16 * 1024 * 1024, maxDecodedBytes: 48 * 1024 * 1024 };

/** Of plugins and probed pods: gRPC's usual length. 16,000 devices with their NUMA nodes take all of the memory. */
export const pluginLimits: DecodeLimits = { maxMessageBytes: 4 * 1024 * 1024, maxDecodedBytes: 16 * 1024 * 1024 };

/** Of answers that name a plugin or a volume. */
export const smallLimits: DecodeLimits = { maxMessageBytes: 256 * 1024, maxDecodedBytes: 2 * 1024 * 1024 };

/** Estimated memory of decoded data, bytes: a message object with its fields (measured with the widest messages of CRI), a varint (a tag,
 *  a length or a value) with what it leads to, and what the handling of any message counts for: it takes as long as decoding so much. */
const objectBytes = 256;
const varintBytes = 16;
const handlingBytes = 32 * 1024;

/** Decodes a message of a peer within bounds, which hold at every depth and for repeated fields, maps and unknown fields alike.
 *  @param decode as ts-proto generates it. @param budget charged with the estimated memory, whether the message can be decoded or not.
 *  @throws CodedError resource_exhausted for a message beyond the bounds, or a target over its budget; what `decode` throws. */
export function decodeBounded<T>(
  decode: (reader: BinaryReader) => T,
  bytes: Uint8Array,
  { maxMessageBytes, maxDecodedBytes }: DecodeLimits,
  budget?: TargetBudget,
): T {
  // A target over its budget is refused before its message costs anything.
  budget?.spend(handlingBytes);
  if (bytes.length > maxMessageBytes)
    throw new CodedError(
      "resource_exhausted",
      `a message of ${bytes.length} bytes is longer than ${maxMessageBytes} bytes`,
    );
  budget?.spend(bytes.length);
  if (countFields(bytes) * objectBytes > maxDecodedBytes) throw tooManyEntries(bytes.length, maxDecodedBytes);
  const reader = new BoundedReader(bytes, maxDecodedBytes);
  try {
    return decode(reader);
  } finally {
    budget?.spend(reader.decodedBytes - bytes.length);
  }
}

function tooManyEntries(length: number, limit: number): CodedError {
  return new CodedError(
    "resource_exhausted",
    `a message of ${length} bytes has too many entries: it would take more than ${limit} bytes of memory`,
  );
}

/** Wire types, the low three bits of a tag. @see https://protobuf.dev/programming-guides/encoding/#structure */
const [varintType, bit64Type, lengthDelimitedType, bit32Type] = [0, 1, 2, 5];

/** Number of the fields of a message itself, without those within them; nothing is made of them. The count ends where the message is
 *  not well-formed, which its decoding reports. */
function countFields(bytes: Uint8Array): number {
  let fields = 0;
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let shift = 0; shift < 64; shift += 7) {
      const byte = bytes[at] ?? 0;
      at += 1;
      if (shift < 28) value |= (byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (at < bytes.length) {
    const wireType = varint() & 7;
    fields += 1;
    if (wireType === varintType) varint();
    else if (wireType === lengthDelimitedType) {
      // Reading the length moves the position as well, so the two must not be one expression.
      const length = varint();
      at += length;
    } else if (wireType === bit64Type) at += 8;
    else if (wireType === bit32Type) at += 4;
  }
  return fields;
}

/** Estimates the memory of what is read, and throws once it is beyond a limit. */
class BoundedReader extends BinaryReader {
  /** Estimated so far, bytes. */
  decodedBytes: number;
  readonly #limit: number;
  #depth = 0;

  constructor(bytes: Uint8Array, limit: number) {
    super(bytes);
    this.decodedBytes = bytes.length;
    this.#limit = limit;
    this.uint32 = boundedUint32;
  }

  charge(bytes: number): void {
    this.decodedBytes += bytes;
    if (this.decodedBytes <= this.#limit) return;
    throw tooManyEntries(this.len, this.#limit);
  }

  // Packed values of 64 bits have no tag each, and become objects.
  override int64(): bigint | string {
    this.charge(2 * varintBytes);
    return super.int64();
  }

  /** The code that ts-proto generates raises and lowers the depth around each message. */
  get __tsProtoDecodeDepth(): number {
    return this.#depth;
  }

  set __tsProtoDecodeDepth(depth: number) {
    if (depth > this.#depth) this.charge(objectBytes);
    this.#depth = depth;
  }
}

/** The library's, which its constructor makes a property: one shared function here, too, or each read takes twice as long. */
const uint32 = new BinaryReader(new Uint8Array()).uint32;

function boundedUint32(this: BoundedReader): number {
  this.charge(varintBytes);
  return uint32.call(this);
}
