/** Architectures of the program, by Go's names. */
export type Architecture = "amd64" | "arm64";

/** Creates the pause program, a pod's first process, which uses only system calls. It blocks SIGINT, SIGTERM and SIGCHLD, so that
 *  they stay pending even for PID 1 of a PID namespace, and then waits for them: on SIGCHLD it reaps all ended children, on the
 *  other signals it exits with 0.
 *  @see https://man7.org/linux/man-pages/man2/rt_sigtimedwait.2.html
 *  @see https://man7.org/linux/man-pages/man7/pid_namespaces.7.html */
export function pauseProgram(machine: Architecture): Buffer {
  return machine === "amd64" ? executable(62, assemble(amd64)) : executable(183, assemble(arm64));
}

const sigint = 2;
const sigterm = 15;
const sigchld = 17;
/** A signal set is one 64-bit word: bit n - 1 stands for signal n. */
const signals = [sigint, sigterm, sigchld].reduce((set, signal) => set | (1 << (signal - 1)), 0);

const code = (...bytes: readonly number[]): Instruction => Uint8Array.from(bytes);

/** `mov r32, imm32` for eax, ecx, edx, …, by the register's number. */
const movImmediate = (register: number, value: number) => code(0xb8 + register, ...littleEndian(value, 4));
const [eax, edx, esi, edi] = [0, 2, 6, 7];
/** `xor r32, r32` of a register with itself: 0 in the whole register. */
const zero = (register: number) => code(0x31, 0xc0 | (register << 3) | register);
const syscall = code(0x0f, 0x05);
/** `mov r10d, 8`: the size of a signal set, in bytes. */
const setSize = code(0x41, 0xba, ...littleEndian(8, 4));

/** System V calling convention of the kernel: number in rax; arguments in rdi, rsi, rdx, r10. Short jumps are an opcode and
 *  the distance from the next instruction, one byte. */
const shortJump = (opcode: number, to: string) => jump(to, 2, (distance) => [opcode, (distance - 2) & 0xff]);

const amd64: readonly Instruction[] = [
  code(0x68, ...littleEndian(signals, 4)), // push signals
  movImmediate(eax, 14), // rt_sigprocmask(
  zero(edi), //             SIG_BLOCK,
  code(0x48, 0x89, 0xe6), // &signals: mov rsi, rsp
  zero(edx), //             NULL,
  setSize,
  syscall,
  label("wait"),
  movImmediate(eax, 128), // rt_sigtimedwait(
  code(0x48, 0x89, 0xe7), // &signals: mov rdi, rsp
  zero(esi), //              NULL,
  zero(edx), //              NULL,
  setSize,
  syscall,
  code(0x83, 0xf8, sigchld), // cmp eax, SIGCHLD
  shortJump(0x74, "reap"), //   je reap
  code(0x85, 0xc0), //          test eax, eax
  shortJump(0x78, "wait"), //   js wait: interrupted
  movImmediate(eax, 231), // exit_group(
  zero(edi), //              0)
  syscall,
  label("reap"),
  movImmediate(eax, 61), // wait4(
  code(0x48, 0xc7, 0xc7, ...littleEndian(-1, 4)), // any child: mov rdi, -1
  zero(esi), //             NULL,
  movImmediate(edx, 1), //  WNOHANG,
  code(0x45, 0x31, 0xd2), // NULL): xor r10d, r10d
  syscall,
  code(0x85, 0xc0), //         test eax, eax
  shortJump(0x7f, "reap"), //  jg reap: there may be more
  shortJump(0xeb, "wait"), //  jmp wait
];

const word = (bits: number): Instruction => Uint8Array.from(littleEndian(bits, 4));
const [x0, x1, x2, x3, x8, x9, sp] = [0, 1, 2, 3, 8, 9, 31];
/** `movz xD, value`, up to 16 bits. */
const movz = (register: number, value: number) => word(0xd2800000 | (value << 5) | register);
/** `add xD, sp, #0`, a copy of sp. */
const fromSp = (register: number) => word(0x91000000 | (sp << 5) | register);
const svc = word(0xd4000001);
/** Distances count instructions of 4 bytes. */
const branch = (to: string, bits: (instructions: number) => number) =>
  jump(to, 4, (distance) => littleEndian(bits(distance / 4), 4));
const branchIf = (condition: number, to: string) =>
  branch(to, (distance) => 0x54000000 | ((distance & 0x7ffff) << 5) | condition);
const [equal, greater] = [0, 12];
/** `cmp w0, #value` */
const compare = (value: number) => word(0x7100001f | (value << 10) | (x0 << 5));

/** Calling convention of the kernel: number in x8; arguments in x0, x1, x2, x3. */
const arm64: readonly Instruction[] = [
  movz(x9, signals & 0xffff),
  word(0xf2a00000 | ((signals >>> 16) << 5) | x9), //     movk x9, #high, lsl #16
  word(0xf8000c00 | (0x1f0 << 12) | (sp << 5) | x9), //   str x9, [sp, #-16]!
  movz(x8, 135), // rt_sigprocmask(
  movz(x0, 0), //   SIG_BLOCK,
  fromSp(x1), //    &signals,
  movz(x2, 0), //   NULL,
  movz(x3, 8), //   8)
  svc,
  label("wait"),
  movz(x8, 137), // rt_sigtimedwait(
  fromSp(x0), //    &signals,
  movz(x1, 0), //   NULL,
  movz(x2, 0), //   NULL,
  movz(x3, 8), //   8)
  svc,
  compare(sigchld),
  branchIf(equal, "reap"),
  branch("wait", (distance) => 0x37f80000 | ((distance & 0x3fff) << 5) | x0), // tbnz w0, #31: interrupted
  movz(x8, 94), // exit_group(
  movz(x0, 0), //  0)
  svc,
  label("reap"),
  movz(x8, 260), //            wait4(
  word(0x92800000 | x0), //    any child: movn x0, #0
  movz(x1, 0), //              NULL,
  movz(x2, 1), //              WNOHANG,
  movz(x3, 0), //              NULL)
  svc,
  compare(0),
  branchIf(greater, "reap"), // there may be more
  branch("wait", (distance) => 0x14000000 | (distance & 0x3ffffff)),
];

const loadAddress = 0x400000;
const headerBytes = 64;
const programHeaderBytes = 56;
/** Alignment of the segment, for page sizes of 4, 16 and 64 KiB. */
const alignment = 0x10000;

/** Creates a static ELF file: header, one segment with the whole file, one that marks the stack as non-executable, code.
 *  @see https://refspecs.linuxfoundation.org/elf/elf.pdf */
function executable(machine: number, text: Uint8Array): Buffer {
  const codeAt = headerBytes + 2 * programHeaderBytes;
  const size = codeAt + text.length;
  const header = [
    [0x7f, 0x45, 0x4c, 0x46], // \x7fELF
    [2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], // 64 bits, little-endian, version 1, System V
    littleEndian(2, 2), // ET_EXEC
    littleEndian(machine, 2),
    littleEndian(1, 4), // version
    littleEndian(loadAddress + codeAt, 8), // entry
    littleEndian(headerBytes, 8), // program headers
    littleEndian(0, 8), // no section headers
    littleEndian(0, 4), // flags
    littleEndian(headerBytes, 2),
    littleEndian(programHeaderBytes, 2),
    littleEndian(2, 2), // program headers
    [0, 0, 0, 0, 0, 0], // section headers: size, count, names
  ].flat();
  const load = programHeader({ type: 1, flags: 5, address: loadAddress, size, align: alignment });
  const stack = programHeader({ type: 0x6474e551, flags: 6, address: 0, size: 0, align: 16 });
  return Buffer.from([...header, ...load, ...stack, ...text]);
}

interface Segment {
  /** Type of the segment: PT_LOAD or PT_GNU_STACK. */
  readonly type: number;
  /** Flags of a segment: 1 execute, 2 write, 4 read. */
  readonly flags: number;
  readonly address: number;
  readonly size: number;
  readonly align: number;
}

function programHeader({ type, flags, address, size, align }: Segment): readonly number[] {
  const offset = 0;
  return [
    ...littleEndian(type, 4),
    ...littleEndian(flags, 4),
    ...[offset, address, address, size, size, align].flatMap((value) => littleEndian(value, 8)),
  ];
}

/** Code bytes, a label, or a jump. */
type Instruction = Uint8Array | { readonly label: string } | Jump;

interface Jump {
  readonly to: string;
  readonly bytes: number;
  /** @param distance from the start of the jump to its target, bytes. */
  readonly encode: (distance: number) => readonly number[];
}

export function label(name: string): Instruction {
  return { label: name };
}

/** Creates a jump of a known size. @param encode gets the distance in bytes from the start of the jump. */
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

/** Returns the low `bytes` bytes of a number, little-endian; negative numbers are in two's complement. */
function littleEndian(value: number, bytes: number): readonly number[] {
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
