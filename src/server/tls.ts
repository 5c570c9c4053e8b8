import { type SecureContextOptions, getCiphers } from "node:tls";
import { CodedError } from "../lib/errors.ts";

/** TLS settings with KubeletConfiguration's names. */
export interface TlsSettings {
  readonly tlsMinVersion: string;
  readonly tlsCipherSuites: readonly string[];
}

/** Suites of TLS 1.3, which Kubernetes components always offer. */
const tls13Suites = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/** Translates TLS settings into Node's. @throws CodedError invalid_argument, naming the field, the value and the remedy.
 *  @see https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ (tlsCipherSuites, tlsMinVersion) */
export function tlsOptions({
  tlsMinVersion,
  tlsCipherSuites,
}: TlsSettings): Pick<SecureContextOptions, "minVersion" | "ciphers"> {
  const minVersion = minVersions.get(tlsMinVersion);
  if (!minVersion) {
    throw new CodedError(
      "invalid_argument",
      `tlsMinVersion "${tlsMinVersion}" is not supported: use VersionTLS12 or VersionTLS13, or omit it`,
    );
  }
  if (tlsCipherSuites.length === 0) return { minVersion };
  const older = tlsCipherSuites.filter((suite) => !tls13Suites.includes(suite)).map(opensslName);
  return { minVersion, ciphers: [...tls13Suites, ...older].join(":") };
}

const minVersions: ReadonlyMap<string, "TLSv1.2" | "TLSv1.3"> = new Map([
  ["", "TLSv1.2"],
  ["VersionTLS12", "TLSv1.2"],
  ["VersionTLS13", "TLSv1.3"],
]);

/** OpenSSL's name of a TLS 1.2 suite with this IANA name. */
function opensslName(suite: string): string {
  const name = suite
    .replace(/^TLS_RSA_WITH_3DES_EDE_CBC_SHA$/, "DES-CBC3-SHA")
    .replace(/^TLS_RSA_WITH_/, "")
    .replace(/^TLS_/, "")
    .replace("_WITH_", "-")
    .replace(/CHACHA20_POLY1305(_SHA256)?$/, "CHACHA20-POLY1305")
    .replace(/AES_(\d+)/, "AES$1")
    .replace("_CBC_", "_")
    .replaceAll("_", "-");
  if (getCiphers().includes(name.toLowerCase())) return name;
  throw new CodedError(
    "invalid_argument",
    `tlsCipherSuites "${suite}" is not supported: use suites that this build offers, or omit the field`,
  );
}
