/** A frame as the daemon writes it. @param kind 0 to 3: stdin, stdout, stderr, its own error message. */
export function frame(kind: number, text: string | Buffer): Buffer {
  const body = Buffer.from(text);
  const header = Buffer.from([kind, 0, 0, 0, 0, 0, 0, 0]);
  header.writeUInt32BE(body.length, 4);
  return Buffer.concat([header, body]);
}

/** The bytes in blocks, each in separate memory. */
export function cut(bytes: Buffer, size: number): Buffer[] {
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) =>
    Buffer.from(bytes.subarray(index * size, (index + 1) * size)),
  );
}
