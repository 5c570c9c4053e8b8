import { createHash } from "node:crypto";
import { appendFile, readFile } from "node:fs/promises";
import { CodedError, messageOf } from "../../../src/lib/errors.ts";
import { hasErrno } from "../../local/errors.ts";
import type { HostKeyTrust } from "../door.ts";
import { type KnownKey, hostName, knownKeys } from "./known-hosts.ts";
import { LinkError } from "./link-state.ts";

/** The check of one connection's host key. */
export interface HostKeyCheck {
  /** Signature algorithms offered to the target, those of known keys first, so that it shows a key that can be compared. */
  readonly algorithms: readonly string[];
  /** @param key the target's key in SSH's wire format. @returns the reason for refusing it. */
  refusal(key: Buffer): LinkError | undefined;
  /** Saves a key accepted on first use, after the target has proved that it holds it. */
  remember(): Promise<void>;
}

const algorithmsOf: Readonly<Record<string, readonly string[]>> = {
  "ssh-ed25519": ["ssh-ed25519"],
  "ecdsa-sha2-nistp256": ["ecdsa-sha2-nistp256"],
  "ecdsa-sha2-nistp384": ["ecdsa-sha2-nistp384"],
  "ecdsa-sha2-nistp521": ["ecdsa-sha2-nistp521"],
  "ssh-rsa": ["rsa-sha2-512", "rsa-sha2-256"],
};

/** Prepares the check of a target's host key; reads the known_hosts file, if any.
 *  @throws LinkError HostKeyUnknown when that file cannot be read. */
export async function hostKeyCheck(trust: HostKeyTrust, host: string, port: number): Promise<HostKeyCheck> {
  if (trust.by === "fingerprints") return byFingerprint(trust.fingerprints, hostName(host, port));
  const known = knownKeys(await readKnownHosts(trust), host, port);
  return byKnownKeys({ known, trust, name: hostName(host, port) });
}

/** A key's fingerprint, as `ssh-keygen -l` prints it. */
export function fingerprintOf(key: Buffer): string {
  return `SHA256:${createHash("sha256").update(key).digest("base64").replaceAll("=", "")}`;
}

/** Type of a key in SSH's wire format. */
export function keyType(key: Buffer): string {
  return key.length < 4 ? "" : key.subarray(4, 4 + key.readUInt32BE(0)).toString("latin1");
}

function byFingerprint(fingerprints: readonly string[], name: string): HostKeyCheck {
  return {
    algorithms: Object.values(algorithmsOf).flat(),
    refusal: (key) =>
      fingerprints.includes(fingerprintOf(key)) ? undefined : mismatch(name, key, "hostKeyFingerprints"),
    remember: () => Promise.resolve(),
  };
}

interface Known {
  readonly known: readonly KnownKey[];
  readonly trust: Exclude<HostKeyTrust, { by: "fingerprints" }>;
  readonly name: string;
}

function byKnownKeys({ known, trust, name }: Known): HostKeyCheck {
  const good = known.filter(({ revoked }) => !revoked);
  const types = new Set(good.map(({ type }) => type));
  const ranked = Object.entries(algorithmsOf).sort(([a], [b]) => Number(types.has(b)) - Number(types.has(a)));
  let taken: Buffer | undefined;
  return {
    algorithms: ranked.flatMap(([, algorithms]) => algorithms),
    refusal(key) {
      const text = key.toString("base64");
      if (known.some((each) => each.revoked && each.key === text)) return mismatch(name, key, trust.file);
      if (good.some((each) => each.key === text)) return undefined;
      if (good.length > 0) return mismatch(name, key, trust.file);
      if (trust.by === "knownHosts") return unknownKey(name, key, trust.file);
      taken = key;
      return undefined;
    },
    async remember() {
      if (taken)
        await appendFile(trust.file, `${name} ${keyType(taken)} ${taken.toString("base64")}\n`, { mode: 0o600 });
    },
  };
}

async function readKnownHosts({ by, file }: Exclude<HostKeyTrust, { by: "fingerprints" }>): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if (hasErrno(error, "ENOENT") && by === "firstUse") return "";
    throw new LinkError(
      "HostKeyUnknown",
      "failed_precondition",
      `providerConfig.knownHostsFile cannot be read: ${messageOf(error)}: make it with ssh-keyscan, and compare the key with the target's own.`,
      { cause: new CodedError("failed_precondition", messageOf(error)) },
    );
  }
}

function mismatch(name: string, key: Buffer, source: string): LinkError {
  return new LinkError(
    "HostKeyMismatch",
    "permission_denied",
    `${name} showed the ${keyType(key)} key ${fingerprintOf(key)}, which is not the one in ${source}: if the target was set up anew, put its new key there; otherwise the connection is being intercepted.`,
  );
}

function unknownKey(name: string, key: Buffer, file: string): LinkError {
  return new LinkError(
    "HostKeyUnknown",
    "permission_denied",
    `${file} has no key for ${name}, which showed the ${keyType(key)} key ${fingerprintOf(key)}: compare it with the target's own and add it there.`,
  );
}
