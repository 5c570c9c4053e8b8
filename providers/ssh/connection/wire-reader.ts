/** Reads SSH's wire format (RFC 4251 §5). Each method throws a RangeError if the bytes end within the value. */
export class WireReader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  /** Number of bytes read so far. */
  get position(): number {
    return this.#at;
  }

  get atEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  string(): Buffer {
    return this.#take(this.uint32());
  }

  text(): string {
    return this.string().toString("utf8");
  }

  uint32(): number {
    return this.#take(4).readUInt32BE();
  }

  uint64(): bigint {
    return this.#take(8).readBigUInt64BE();
  }

  #take(length: number): Buffer {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new RangeError("unexpected end of data");
    const taken = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return taken;
  }
}

/** Encodes bytes as a string in SSH's wire format. */
export function wireString(bytes: string | Buffer): Buffer {
  const body = Buffer.from(bytes);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(body.length);
  return Buffer.concat([length, body]);
}
