import { createHash } from "node:crypto";

/** Returns a key's fingerprint as `ssh-keygen -l` prints it. @param key in SSH's wire format. */
export function fingerprintOf(key: Buffer): string {
  return `SHA256:${createHash("sha256").update(key).digest("base64").replaceAll("=", "")}`;
}

/** Returns the type of a key in SSH's wire format; empty if the bytes are not a key. */
export function keyType(key: Buffer): string {
  return key.length < 4 ? "" : key.subarray(4, 4 + key.readUInt32BE(0)).toString("latin1");
}
