import { createHash } from "node:crypto";

/** SHA-256 of these bytes, hexadecimal. */
export function sha256(bytes: Buffer | string): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** The lines of a file of checksums, as `sha256sum -c` reads it: sorted by name. @param files names and contents. */
export function checksumsOf(files: Readonly<Record<string, Buffer | string>>): string {
  const names = Object.keys(files).toSorted();
  return names.map((name) => `${sha256(files[name] ?? "")}  ${name}\n`).join("");
}

/** Holds bytes to an integrity of package-lock.json: `sha512-` and the digest in base64. @param what it is, for the error.
 *  @throws one sentence when they differ.
 *  @see https://www.w3.org/TR/SRI/ */
export function checkIntegrity(bytes: Buffer, integrity: string, what: string): void {
  const [algorithm = "", expected] = integrity.split(/-(.*)/s);
  const found = createHash(algorithm).update(bytes).digest("base64");
  if (found !== expected)
    throw new Error(
      `${what} is ${algorithm}-${found}, and package-lock.json says ${integrity}: do not ship it, ask where it comes from`,
    );
}
