import { X509Certificate, createPrivateKey } from "node:crypto";
import { mkdir, readFile, readlink, rename, rm, symlink } from "node:fs/promises";
import { basename, join } from "node:path";
import { CodedError, messageOf } from "../lib/errors.ts";
import { writeFileAtomically } from "../lib/write-file-atomically.ts";
import type { KeyPair } from "./self-signed.ts";

/** Storage of a certificate issued by the cluster, on graftlet's side. */
export interface PairStore {
  /** The newest pair; undefined if there is none, or no usable one. */
  read(signal: AbortSignal): Promise<KeyPair | undefined>;
  /** @param now milliseconds since the epoch. */
  write(pair: KeyPair, now: number, signal: AbortSignal): Promise<void>;
  /** The key of the current request, in PEM. */
  pendingKey(signal: AbortSignal): Promise<string | undefined>;
  /** @param key undefined: no current request. */
  storePendingKey(key: string | undefined, signal: AbortSignal): Promise<void>;
}

/** Link to the newest pair of a file store. */
export function currentFile(dir: string, name: string): string {
  return join(dir, `${name}-current.pem`);
}

/** Stores pairs like the kubelet: `NAME-current.pem` is a link to the newest of several files, each with a certificate and its key.
 *  @param dir --cert-dir, created if missing. @param name such as `kubelet-client`.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/ */
export function filePairStore(dir: string, name: string): PairStore {
  const current = currentFile(dir, name);
  const pending = join(dir, `${name}.key.tmp`);
  const writing = async (what: () => Promise<void>) => {
    try {
      await mkdir(dir, { recursive: true, mode: 0o755 });
      await what();
    } catch (cause) {
      const sentence = `cert-dir "${dir}" is not writable (${messageOf(cause)}): make it writable, or set another directory`;
      throw new CodedError("permission_denied", sentence, { cause });
    }
  };
  return {
    read: async () => parsePair(await readFile(current, "utf8").catch(() => "")),
    write: (pair, now) =>
      writing(async () => {
        const before = await readlink(current).catch(() => undefined);
        const file = `${name}-${stampOf(now)}.pem`;
        await writeFileAtomically(join(dir, file), `${pair.certificate.trimEnd()}\n${pair.key}`, 0o600);
        const beside = `${current}.new`;
        await rm(beside, { force: true });
        await symlink(file, beside);
        await rename(beside, current);
        if (before && basename(before) !== file) await rm(join(dir, basename(before)), { force: true });
      }),
    pendingKey: async () => (await readFile(pending, "utf8").catch(() => "")) || undefined,
    storePendingKey: (key) =>
      writing(() => (key === undefined ? rm(pending, { force: true }) : writeFileAtomically(pending, key, 0o600))),
  };
}

/** Parses a certificate chain and its key from one text, in any order; undefined unless they match. */
export function parsePair(text: string): KeyPair | undefined {
  const blocks = text.match(/-----BEGIN ([A-Z ]+)-----[^-]+-----END \1-----/g) ?? [];
  const certificate = blocks.filter((block) => block.startsWith("-----BEGIN CERTIFICATE-----")).join("\n");
  const key = blocks.find((block) => /^-----BEGIN [A-Z ]*PRIVATE KEY-----/.test(block));
  try {
    if (!key || !new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key))) return undefined;
  } catch {
    return undefined;
  }
  return { certificate: `${certificate}\n`, key: `${key}\n` };
}

/** True if both are the same certificate with the same key. */
export function isSamePair(one: KeyPair, other: KeyPair | undefined): boolean {
  return one.certificate === other?.certificate && one.key === other.key;
}

/** True if a certificate is currently valid. @param now milliseconds since the epoch. */
export function isValid({ certificate }: KeyPair, now: number): boolean {
  const { validFromDate, validToDate } = new X509Certificate(certificate);
  return validFromDate.getTime() <= now && now < validToDate.getTime();
}

/** `2026-01-31-23-59-59`, as in the kubelet's file names. */
function stampOf(now: number): string {
  return new Date(now).toISOString().slice(0, 19).replace(/[T:]/g, "-");
}
