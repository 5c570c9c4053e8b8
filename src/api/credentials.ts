import { X509Certificate } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import type { RequestOptions } from "node:https";
import { isDeepStrictEqual } from "node:util";
import { ExecAuth } from "@kubernetes/client-node/dist/exec_auth.js";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { createSingleFlight } from "../lib/single-flight.ts";
import type { AccessFile, ClusterAccess } from "./kubeconfig.ts";

/** Connection settings. A change of any of them requires new connections. */
export interface TlsOptions {
  readonly ca?: Buffer | undefined;
  readonly cert?: Buffer | string | undefined;
  readonly key?: Buffer | string | undefined;
  readonly servername?: string | undefined;
  readonly rejectUnauthorized: boolean;
}

/** Address, connection settings and authorization of a request. */
export interface Credentials {
  readonly server: URL;
  readonly proxy?: string | undefined;
  readonly tls: TlsOptions;
  /** Grows whenever the server, proxy or TLS options have changed. */
  readonly generation: number;
  /** Headers for authorization and impersonation. */
  readonly headers: Readonly<Record<string, string>>;
}

export type CredentialSource = ReturnType<typeof createCredentials>;

/** Interval at which files are checked for changes, milliseconds. */
const fileCheckIntervalMs = 10_000;
/** Time after which a token file is read again, milliseconds, as in client-go. */
const tokenFileMs = 60_000;

/** Creates the source of a client's headers (authentication and impersonation), TLS settings and address, which it keeps up to
 *  date.
 *  @throws CodedError, one sentence, if the configuration or a file that it names is unusable, or the certificate has expired. */
export function createCredentials(deps: { from: AccessFile; clock: Clock; log: Logger }) {
  const { from, clock, log } = deps;
  let loaded = load(from, clock.now());
  let plugin = new ExecAuth();
  let checkedAt = clock.monotonic();
  let generation = 1;
  let fromPlugin: Pick<TlsOptions, "cert" | "key"> = {};
  const reload = () => {
    try {
      const { access, tls } = loaded;
      loaded = load(from, undefined);
      // Files are also written again as they were.
      if (isDeepStrictEqual([access, tls], [loaded.access, loaded.tls])) return;
      generation += 1;
      log.info({ from: from.name }, "reloaded changed credentials");
    } catch (err) {
      log.warn({ err, from: from.name }, "cannot load changed credentials; keeping the old ones");
      loaded = { ...loaded, stamp: stampOf(from, loaded.access) };
    }
  };
  const token = createTokenFile(clock);
  const once = createSingleFlight<PluginAnswer>();
  return {
    /** Returns the current credentials. Files are read again when they have changed; an exec plugin runs again when its answer
     *  has expired.
     *  @throws CodedError unauthenticated when a plugin or token file fails. */
    async current() {
      if (clock.monotonic() - checkedAt >= fileCheckIntervalMs) {
        checkedAt = clock.monotonic();
        if (stampOf(from, loaded.access) !== loaded.stamp) reload();
      }
      const { access, tls } = loaded;
      const answer = await once("plugin", () => askPlugin(plugin, access));
      if (answer.cert !== fromPlugin.cert || answer.key !== fromPlugin.key) {
        generation += fromPlugin.cert === undefined ? 0 : 1;
        fromPlugin = { cert: answer.cert, key: answer.key };
      }
      return {
        server: new URL(access.cluster.server),
        proxy: access.cluster.proxyUrl,
        tls: answer.cert === undefined ? tls : { ...tls, cert: answer.cert, key: answer.key },
        generation,
        headers: { ...headersOf(access, access.tokenFile && token.read(access.tokenFile)), ...answer.headers },
      };
    },
    /** To be called after the server has refused the credentials: the next request reads all of them again. */
    refused() {
      checkedAt = Number.NEGATIVE_INFINITY;
      plugin = new ExecAuth();
      token.forget();
    },
  };
}

/** Reads and checks the access configuration. @param now milliseconds since the epoch; undefined to accept an expired
 *  certificate. */
function load(from: AccessFile, now: number | undefined) {
  const access = from.read();
  const path = from.name;
  const { cluster, user } = access;
  const ca = read(path, "certificate-authority", cluster.caFile, cluster.caData);
  const cert = read(path, "client-certificate", user.certFile, user.certData);
  const key = read(path, "client-key", user.keyFile, user.keyData);
  if (cert) checkCertificate({ path, file: user.certFile ?? "client-certificate-data", cert, now });
  if (cert && !key)
    throw new CodedError(
      "invalid_argument",
      `${path}: user ${JSON.stringify(user.name)} has a client-certificate but no client-key`,
    );
  const tls = { ca, cert, key, servername: cluster.tlsServerName, rejectUnauthorized: !cluster.skipTLSVerify };
  return { access, tls, stamp: stampOf(from, access) };
}

function read(path: string, field: string, file: string | undefined, data: string | undefined): Buffer | undefined {
  if (data) return Buffer.from(data, "base64");
  if (!file) return undefined;
  try {
    return readFileSync(file);
  } catch (error) {
    throw new CodedError("invalid_argument", `${path}: ${field} ${file} cannot be read: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

function checkCertificate({
  path,
  file,
  cert,
  now,
}: {
  path: string;
  file: string;
  cert: Buffer;
  now: number | undefined;
}): void {
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(cert);
  } catch (error) {
    throw new CodedError("invalid_argument", `${path}: ${file} does not contain a PEM certificate`, { cause: error });
  }
  const end = certificate.validToDate;
  if (now !== undefined && end.getTime() <= now) {
    throw new CodedError(
      "invalid_argument",
      `${path}: the client certificate (${file}) expired at ${end.toISOString()}; renew it`,
    );
  }
}

/** Returns a stamp that changes when any of the files does; a missing file counts as unchanged. */
function stampOf({ path }: AccessFile, { cluster, user }: ClusterAccess): string {
  const files = [path, cluster.caFile, user.certFile, user.keyFile].filter(
    (file) => file !== undefined && file !== null,
  );
  return files
    .map((file) => {
      const info = statSync(file, { throwIfNoEntry: false });
      return info ? `${info.ino}:${info.mtimeMs}:${info.size}` : "";
    })
    .join(" ");
}

function headersOf({ user }: ClusterAccess, fileToken: string | undefined): Record<string, string> {
  const token = fileToken ?? user.token;
  const basic = user.username && `Basic ${Buffer.from(`${user.username}:${user.password ?? ""}`).toString("base64")}`;
  const authorization = token ? `Bearer ${token}` : basic;
  return {
    ...(authorization && { authorization }),
    ...(user.impersonateUser && { "impersonate-user": user.impersonateUser }),
  };
}

type PluginAnswer = Pick<TlsOptions, "cert" | "key"> & { readonly headers: Readonly<Record<string, string>> };

/** @see https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins */
async function askPlugin(plugin: ExecAuth, { cluster, user }: ClusterAccess): Promise<PluginAnswer> {
  if (!user.exec) return { headers: {} };
  const exec = user.exec as { apiVersion?: string; env?: { name: string; value: string }[] };
  const info = {
    apiVersion: exec.apiVersion,
    kind: "ExecCredential",
    spec: { interactive: false, cluster: { server: cluster.server, "certificate-authority-data": cluster.caData } },
  };
  const env = [...(exec.env ?? []), { name: "KUBERNETES_EXEC_INFO", value: JSON.stringify(info) }];
  const options: RequestOptions = {};
  try {
    await plugin.applyAuthentication({ ...user, exec: { ...exec, env } }, options);
  } catch (error) {
    throw new CodedError(
      "unauthenticated",
      `the credential plugin of user ${JSON.stringify(user.name)} failed: ${messageOf(error)}`,
      { cause: error },
    );
  }
  const headers = options.headers as Record<string, string> | undefined;
  const { cert, key } = options as { cert?: string; key?: string };
  return { cert, key, headers: headers?.["Authorization"] ? { authorization: headers["Authorization"] } : {} };
}

function createTokenFile(clock: Clock): { read(file: string): string; forget(): void } {
  let known: { readonly token: string; readonly at: number } | undefined;
  return {
    read(file) {
      if (known && clock.monotonic() - known.at < tokenFileMs) return known.token;
      try {
        known = { token: readFileSync(file, "utf8").trim(), at: clock.monotonic() };
      } catch (error) {
        if (!known)
          throw new CodedError("unauthenticated", `token file ${file} cannot be read: ${messageOf(error)}`, {
            cause: error,
          });
      }
      return known.token;
    },
    forget() {
      known = undefined;
    },
  };
}
