import { BinaryReader } from "@bufbuild/protobuf/wire";
import { CodedError } from "./errors.ts";
import type { TargetBudget } from "./target-budget.ts";

// Entries of a few bytes on the wire become objects of hundreds of bytes each: limiting a message's length does not limit its
// memory.

/** Limits for the responses of one peer. */
export interface DecodeLimits {
  /** Maximum message length, bytes on the wire. */
  readonly maxMessageBytes: number;
  /** Maximum memory of one decoded message, estimated bytes. */
  readonly maxDecodedBytes: number;
}

/** Limits for container runtimes; the message length is the kubelet's. Stats of 500 pods with 4 containers each take 41 MiB
 *  decoded, other lists less. */
export const runtimeLimits: DecodeLimits = { maxMessageBytes: 16 * 1024 * 1024, maxDecodedBytes: 48 * 1024 * 1024 };

/** Limits for plugins and probed pods; the message length is gRPC's default. The memory is enough for 16,000 devices with
 *  their NUMA nodes. */
export const pluginLimits: DecodeLimits = { maxMessageBytes: 4 * 1024 * 1024, maxDecodedBytes: 16 * 1024 * 1024 };

/** Limits for small responses, such as a plugin's info or a volume's. */
export const smallLimits: DecodeLimits = { maxMessageBytes: 256 * 1024, maxDecodedBytes: 2 * 1024 * 1024 };

/** Estimated memory of decoded data, bytes: a message object with its fields (measured with the widest CRI messages), a varint
 *  (tag, length or value) with its field, and a fixed charge for handling any message, which takes as long as decoding that
 *  much. */
const objectBytes = 256;
const varintBytes = 16;
const handlingBytes = 32 * 1024;

/** Decodes a peer's message within limits, which apply at every depth and to repeated fields, maps and unknown fields.
 *  @param decode as ts-proto generates it. @param budget charged with the estimated memory, even if decoding fails.
 *  @throws CodedError resource_exhausted for a message over the limits, or a target over its budget; errors of `decode`. */
export function decodeBounded<T>(
  decode: (reader: BinaryReader) => T,
  bytes: Uint8Array,
  { maxMessageBytes, maxDecodedBytes }: DecodeLimits,
  budget?: TargetBudget,
): T {
  // Reject a target over its budget before spending time on its message.
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

/** Counts a message's top-level fields without decoding them. Stops at malformed data, which decoding reports. */
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

/** Estimates the memory of decoded values, and throws once it exceeds a limit. */
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

  // Packed 64-bit values have no tags, but become objects.
  override int64(): bigint | string {
    this.charge(2 * varintBytes);
    return super.int64();
  }

  /** ts-proto's generated code increments and decrements the depth around each message. */
  get __tsProtoDecodeDepth(): number {
    return this.#depth;
  }

  set __tsProtoDecodeDepth(depth: number) {
    if (depth > this.#depth) this.charge(objectBytes);
    this.#depth = depth;
  }
}

/** The library's method, which its constructor assigns as a property. It is one shared function here too; otherwise each read
 *  takes twice as long. */
const uint32 = new BinaryReader(new Uint8Array()).uint32;

function boundedUint32(this: BoundedReader): number {
  this.charge(varintBytes);
  return uint32.call(this);
}
