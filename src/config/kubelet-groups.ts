import { checkCipherSuites, checkRange } from "./field-checks.ts";
import { fileVerbosities } from "./object-types.ts";
import { field, pointer, type Shape, type ValueOf } from "./schema.ts";
import { bool, duration, durationOrNanoseconds, int32s, oneOf, quantity, text, texts, uint32 } from "./value-types.ts";

const ownLog = "graftlet writes each line to standard error immediately";

/** Certificates, authentication and authorization. Authentication and authorization are always on by default; a kubelet without a
 *  configuration file keeps its old defaults, which admit all callers.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/ */
export const securityFields = {
  tlsCertFile: field(text, "", { flag: "tls-cert-file" }),
  tlsPrivateKeyFile: field(text, "", { flag: "tls-private-key-file" }),
  tlsCipherSuites: field(texts, [], { flag: "tls-cipher-suites", check: checkCipherSuites }),
  tlsCurvePreferences: field(int32s, [], { instead: "the TLS library chooses the curves" }),
  tlsMinVersion: field(oneOf("", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"), "", {
    flag: "tls-min-version",
  }),
  rotateCertificates: field(bool, false, { flag: "rotate-certificates" }),
  serverTLSBootstrap: field(bool, false, { flag: "rotate-server-certificates" }),
  authentication: {
    x509: { clientCAFile: field(text, "", { flag: "client-ca-file" }) },
    webhook: {
      enabled: pointer(bool, true, { flag: "authentication-token-webhook" }),
      cacheTTL: field(duration, 120_000, { flag: "authentication-token-webhook-cache-ttl" }),
    },
    anonymous: { enabled: pointer(bool, false, { flag: "anonymous-auth" }) },
  },
  authorization: {
    mode: field(oneOf("Webhook", "AlwaysAllow"), "Webhook", { flag: "authorization-mode" }),
    webhook: {
      cacheAuthorizedTTL: field(duration, 300_000, { flag: "authorization-webhook-cache-authorized-ttl" }),
      cacheUnauthorizedTTL: field(duration, 30_000, { flag: "authorization-webhook-cache-unauthorized-ttl" }),
    },
  },
} satisfies Shape;

/** Deviation: the log is JSON unless text is requested. @see https://kubernetes.io/docs/concepts/cluster-administration/system-logs/ */
export const loggingFields = {
  format: field(oneOf("text", "json"), "json", { flag: "logging-format" }),
  flushFrequency: field(durationOrNanoseconds, 5000, {
    flag: "log-flush-frequency",
    check: checkRange(1e-6, Infinity, "above zero"),
    instead: ownLog,
  }),
  verbosity: field(uint32, 0, { flag: "v", check: checkRange(0, 2 ** 31 - 1) }),
  vmodule: field(fileVerbosities, [], {
    flag: "vmodule",
    check: (files) =>
      files.every(({ verbosity }) => verbosity < 2 ** 31) ? undefined : "use verbosities of 0 or more, below 2^31",
  }),
  options: {
    text: {
      splitStream: field(bool, false, { flag: "log-text-split-stream", instead: ownLog }),
      infoBufferSize: field(quantity, "0", { flag: "log-text-info-buffer-size", instead: ownLog }),
    },
    json: {
      splitStream: field(bool, false, { flag: "log-json-split-stream", instead: ownLog }),
      infoBufferSize: field(quantity, "0", { flag: "log-json-info-buffer-size", instead: ownLog }),
    },
  },
} satisfies Shape;

/** Log settings of the process. */
export type Logging = Pick<ValueOf<typeof loggingFields>, "format" | "verbosity" | "vmodule">;
