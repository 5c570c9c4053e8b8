import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A certificate that nobody but itself has signed, and its key, both in PEM. */
export function selfSigned(commonName: string): { readonly key: Buffer; readonly cert: Buffer } {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-tls-"));
  const [key, cert] = [join(folder, "key"), join(folder, "cert")];
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
  try {
    execFileSync(
      "openssl",
      ["req", "-x509", ...curve, "-nodes", "-days", "1", "-subj", `/CN=${commonName}`, "-keyout", key, "-out", cert],
      { stdio: "ignore" },
    );
    return { key: readFileSync(key), cert: readFileSync(cert) };
  } finally {
    rmSync(folder, { recursive: true });
  }
}
