/** Code bytes, a label, or a jump. */
export type Instruction = Uint8Array | { readonly label: string } | Jump;

interface Jump {
  readonly to: string;
  readonly bytes: number;
  /** @param distance from the start of the jump to its target, bytes. */
  readonly encode: (distance: number) => readonly number[];
}

export function label(name: string): Instruction {
  return { label: name };
}

/** A jump of a known size. @param encode gets the distance in bytes from the start of the jump. */
export function jump(to: string, bytes: number, encode: Jump["encode"]): Instruction {
  return { to, bytes, encode };
}

/** Assembles machine code and resolves jumps. @throws Error for an unknown label. */
export function assemble(instructions: readonly Instruction[]): Uint8Array {
  const labels = new Map<string, number>();
  let end = 0;
  for (const instruction of instructions) {
    if ("label" in instruction) labels.set(instruction.label, end);
    else end += sizeOf(instruction);
  }
  const code: number[] = [];
  for (const instruction of instructions) {
    if (instruction instanceof Uint8Array) code.push(...instruction);
    else if ("to" in instruction) code.push(...instruction.encode(labelAddress(instruction.to, labels) - code.length));
  }
  return Uint8Array.from(code);
}

/** The low `bytes` bytes of a number, little-endian; two's complement for negative numbers. */
export function littleEndian(value: number, bytes: number): readonly number[] {
  const wide = BigInt.asUintN(bytes * 8, BigInt(value));
  return Array.from({ length: bytes }, (_, index) => Number((wide >> BigInt(index * 8)) & 0xffn));
}

function sizeOf(instruction: Uint8Array | Jump): number {
  return instruction instanceof Uint8Array ? instruction.length : instruction.bytes;
}

function labelAddress(name: string, labels: ReadonlyMap<string, number>): number {
  const place = labels.get(name);
  if (place === undefined) throw new Error(`jump to unknown label ${name}`);
  return place;
}
