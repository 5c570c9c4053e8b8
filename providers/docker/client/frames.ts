/** A piece of one frame of Docker's multiplexed streams. A frame has one kind and may come in several pieces. */
export interface FramePiece {
  readonly kind: "stdin" | "stdout" | "stderr" | "system";
  readonly bytes: Buffer;
  /** True for the frame's last piece. */
  readonly last: boolean;
}

const headerBytes = 8;
const kinds = ["stdin", "stdout", "stderr", "system"] as const;

/** Parses a stream of frames, each with an eight-byte header: kind, three zeros, length (big endian). Only headers are buffered;
 *  payload is passed on as slices of the given block.
 *  @returns a function that returns the pieces in the next block. Its iteration throws for a header of an unknown kind.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerAttach */
export function createFrames(): (block: Buffer) => Iterable<FramePiece> {
  const header = Buffer.alloc(headerBytes);
  let filled = 0;
  let left = 0;
  return function* pieces(block) {
    let at = 0;
    while (at < block.length || (filled === headerBytes && left === 0)) {
      if (filled < headerBytes) {
        const copied = block.copy(header, filled, at, at + headerBytes - filled);
        filled += copied;
        at += copied;
        left = filled === headerBytes ? header.readUInt32BE(4) : 0;
        continue;
      }
      const bytes = block.subarray(at, at + left);
      at += bytes.length;
      left -= bytes.length;
      const last = left === 0;
      if (last) filled = 0;
      yield { kind: kindOf(header), bytes, last };
    }
  };
}

function kindOf(header: Buffer): FramePiece["kind"] {
  const kind = kinds[header.readUInt8(0)];
  if (!kind) throw new Error("the Docker Engine sent an invalid stream frame");
  return kind;
}
