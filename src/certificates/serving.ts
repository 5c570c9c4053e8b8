import { X509Certificate, createPrivateKey } from "node:crypto";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { createFileWatcher } from "../lib/file-watcher.ts";
import { type Reloading, createReloading } from "../lib/reloading.ts";
import type { Runnable } from "../lib/runnables.ts";
import { writeFileAtomically } from "../lib/write-file-atomically.ts";
import { isSamePair, isValid } from "./pair-store.ts";
import { type KeyPair, makeSelfSigned } from "./self-signed.ts";

export interface ServingCertificateOptions extends ClockAndLog {
  /** KubeletConfiguration.tlsCertFile and tlsPrivateKeyFile; both or none. */
  readonly certFile?: string;
  readonly keyFile?: string;
  /** Directory of the self-signed pair (--cert-dir): kubelet.crt and kubelet.key. */
  readonly certDir: string;
  readonly nodeName: string;
  /** IP addresses and host names of the kubelet API. */
  readonly addresses: readonly string[];
}

/** Polling interval for files whose changes the kernel does not report, milliseconds. */
const intervalMs = 60_000;

/** The kubelet API's certificate: the configured files, read again when they change, or a self-signed pair on graftlet's own machine that is
 *  used while it is valid. As with the kubelet, the self-signed pair is renewed only at startup. @throws CodedError invalid_argument, one
 *  sentence with the field and the remedy.
 *  @see https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ (tlsCertFile) */
export async function createServingCertificate(
  options: ServingCertificateOptions,
): Promise<Reloading<KeyPair> & Runnable> {
  const { clock, log } = options;
  const configured = configuredFiles(options);
  const files = configured ?? {
    certFile: join(options.certDir, "kubelet.crt"),
    keyFile: join(options.certDir, "kubelet.key"),
  };
  const read = () => readPair(files.certFile, files.keyFile);
  const initial = configured
    ? await read().catch((cause: unknown) => {
        const what = `tlsCertFile "${files.certFile}" with tlsPrivateKeyFile "${files.keyFile}" cannot be used (${messageOf(cause)})`;
        throw new CodedError(
          "invalid_argument",
          `${what}: set a readable PEM certificate and its key, or omit both fields`,
          { cause },
        );
      })
    : await loadOrCreatePair(options, files);
  const changed = createFileWatcher([files.certFile, files.keyFile], clock);
  return createReloading({
    name: "serving-certificate",
    initial,
    read,
    same: isSamePair,
    intervalMs,
    changed,
    clock,
    log,
  });
}

interface Files {
  readonly certFile: string;
  readonly keyFile: string;
}

function configuredFiles({ certFile, keyFile }: ServingCertificateOptions): Files | undefined {
  if (certFile && keyFile) return { certFile, keyFile };
  if (!certFile && !keyFile) return undefined;
  const [given, missing] = certFile ? ["tlsCertFile", "tlsPrivateKeyFile"] : ["tlsPrivateKeyFile", "tlsCertFile"];
  throw new CodedError(
    "invalid_argument",
    `${given} "${certFile || keyFile}" is set without ${missing}: set both or neither`,
  );
}

/** @throws CodedError invalid_argument if the certificate and the key do not match. */
async function readPair(certFile: string, keyFile: string): Promise<KeyPair> {
  const [certificate, key] = await Promise.all([readFile(certFile, "utf8"), readFile(keyFile, "utf8")]);
  if (!new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key))) {
    throw new CodedError("invalid_argument", "the key does not match the certificate");
  }
  return { certificate, key };
}

async function loadOrCreatePair(
  { certDir, nodeName, addresses, clock, log }: ServingCertificateOptions,
  { certFile, keyFile }: Files,
): Promise<KeyPair> {
  const kept = await readPair(certFile, keyFile).catch(() => undefined);
  if (kept && isValid(kept, clock.now())) return kept;
  const made = await makeSelfSigned(nodeName, addresses, clock.now());
  try {
    await mkdir(certDir, { recursive: true, mode: 0o755 });
    await writeFileAtomically(keyFile, made.key, 0o600);
    await writeFileAtomically(certFile, made.certificate, 0o644);
  } catch (cause) {
    const sentence = `cert-dir "${certDir}" is not writable (${messageOf(cause)}): make it writable, or set another directory`;
    throw new CodedError("permission_denied", sentence, { cause });
  }
  log.info({ certFile }, "created a self-signed serving certificate");
  return made;
}
