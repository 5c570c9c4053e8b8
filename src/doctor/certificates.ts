import { X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import { type Finding, type CheckResult, examine, failure, ok, warning } from "./findings.ts";

/** A certificate file of a node on graftlet's own machine. */
export interface CertificateFile {
  readonly of: string;
  /** May be missing: the node then requests or creates it. */
  readonly file: string;
  /** Remedy for a certificate that has expired or was not renewed. */
  readonly remedy: string;
}

/** Checks the validity of a node's certificates. */
export async function examineCertificates(
  files: readonly CertificateFile[],
  clock: Pick<Clock, "now">,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const look = async (): Promise<readonly CheckResult[]> => {
    const found = (await Promise.all(files.map((file) => verdictsOf(file, clock.now())))).flat();
    return found.length > 0 ? found : [ok("none yet: the node requests or creates them when it starts")];
  };
  return examine([{ name: "certificates", look }], signal);
}

async function verdictsOf(certificate: CertificateFile, now: number): Promise<readonly CheckResult[]> {
  const { of, file } = certificate;
  const text = await readFile(file, "utf8").catch((error: NodeJS.ErrnoException) =>
    error.code === "ENOENT" ? undefined : error,
  );
  if (text === undefined) return [];
  if (typeof text !== "string") return [warning(`${of}, ${file}: not checked: ${messageOf(text)}`)];
  try {
    return [verdict(certificate, new X509Certificate(text), now)];
  } catch (error) {
    return [failure(`${of}, ${file}: ${messageOf(error)}`)];
  }
}

/** Fraction of its lifetime by which a certificate should have been renewed. */
const renewalDeadline = 0.9;

function verdict(
  { of, remedy }: CertificateFile,
  { validFromDate, validToDate }: X509Certificate,
  now: number,
): CheckResult {
  const [from, to] = [validFromDate.getTime(), validToDate.getTime()];
  const until = `valid until ${validToDate.toISOString()}`;
  if (now >= to) return failure(`${of}: was ${until}: ${remedy}`);
  if (now < from) return failure(`${of}: not valid before ${validFromDate.toISOString()}: set the clocks by NTP`);
  if (now > from + (to - from) * renewalDeadline) return warning(`${of}: ${until}, but not renewed yet: ${remedy}`);
  return ok(`${of}: ${until}`);
}
