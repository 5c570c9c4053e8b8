const blockBytes = 512;

/** A reproducible tar archive (ustar) of one executable file, owned by root, dated to the epoch.
 *  @see https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html#tag_20_94_13_06 */
export function tarOfProgram(name: string, data: Uint8Array): Buffer {
  const padding = Buffer.alloc((blockBytes - (data.length % blockBytes)) % blockBytes);
  const end = Buffer.alloc(2 * blockBytes);
  return Buffer.concat([header(name, data.length), data, padding, end]);
}

function header(name: string, size: number): Buffer {
  const block = Buffer.alloc(blockBytes);
  block.write(name, 0, 100);
  block.write(octal(0o755, 8), 100);
  block.write(octal(0, 8), 108); // uid
  block.write(octal(0, 8), 116); // gid
  block.write(octal(size, 12), 124);
  block.write(octal(0, 12), 136); // modified at
  block.fill(" ", 148, 156); // the checksum counts its own field as spaces
  block.write("0", 156); // a regular file
  block.write("ustar\u000000", 257);
  const checksum = block.reduce((sum, byte) => sum + byte, 0);
  block.write(`${checksum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

/** A number in tar's format: octal digits and a NUL. */
function octal(value: number, bytes: number): string {
  return `${value.toString(8).padStart(bytes - 1, "0")}\0`;
}
