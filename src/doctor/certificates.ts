import { X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import { type Finding, type Verdict, examine, failure, ok, warning } from "./findings.ts";

/** A certificate of a node in a file of graftlet's own machine. */
export interface CertificateFile {
  readonly of: string;
  /** It may be missing: the node then asks for it, or makes it. */
  readonly file: string;
  /** Remedy for one that is over, or was not renewed. */
  readonly remedy: string;
}

/** Looks at how long a node's certificates hold. */
export async function examineCertificates(
  files: readonly CertificateFile[],
  clock: Pick<Clock, "now">,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const look = async (): Promise<readonly Verdict[]> => {
    const found = (await Promise.all(files.map((file) => verdictsOf(file, clock.now())))).flat();
    return found.length > 0 ? found : [ok("none yet: the node asks for them, or makes them, when it starts")];
  };
  return examine([{ name: "certificates", look }], signal);
}

async function verdictsOf(certificate: CertificateFile, now: number): Promise<readonly Verdict[]> {
  const { of, file } = certificate;
  const text = await readFile(file, "utf8").catch((error: NodeJS.ErrnoException) =>
    error.code === "ENOENT" ? undefined : error,
  );
  if (text === undefined) return [];
  if (typeof text !== "string") return [warning(`${of}, ${file}: not looked at: ${messageOf(text)}`)];
  try {
    return [verdict(certificate, new X509Certificate(text), now)];
  } catch (error) {
    return [failure(`${of}, ${file}: ${messageOf(error)}`)];
  }
}

/** Part of its life after which a certificate that renews itself has been renewed. */
const renewedBy = 0.9;

function verdict(
  { of, remedy }: CertificateFile,
  { validFromDate, validToDate }: X509Certificate,
  now: number,
): Verdict {
  const [from, to] = [validFromDate.getTime(), validToDate.getTime()];
  const until = `valid until ${validToDate.toISOString()}`;
  if (now >= to) return failure(`${of}: was ${until}: ${remedy}`);
  if (now < from) return failure(`${of}: not valid before ${validFromDate.toISOString()}: set the clocks by NTP`);
  if (now > from + (to - from) * renewedBy) return warning(`${of}: ${until}, and not renewed yet: ${remedy}`);
  return ok(`${of}: ${until}`);
}
