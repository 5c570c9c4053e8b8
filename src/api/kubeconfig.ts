import { existsSync, readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { dirname, resolve } from "node:path";
// Only the package's kubeconfig reader is imported: its KubeConfig class would load every API model, some 40 MB.
import {
  type Cluster,
  type Context,
  newClusters,
  newContexts,
  newUsers,
  type User,
} from "@kubernetes/client-node/dist/config_types.js";
import { parse, stringify } from "yaml";
import { CodedError, codeOfErrno, messageOf } from "../lib/errors.ts";
import { writeFileAtomically } from "../lib/write-file-atomically.ts";

/** A kubeconfig's cluster and user; file names are absolute. */
export interface ClusterAccess {
  readonly cluster: Cluster;
  readonly user: User;
  /** File with the bearer token. */
  readonly tokenFile?: string;
}

/** Location of the API server's address and credentials. */
export interface AccessFile {
  /** Name of the source in messages, such as `kubeconfig /etc/kubernetes/kubelet.conf`. */
  readonly name: string;
  /** The file to watch for changes; undefined when only the files that it names can change. */
  readonly path: string | undefined;
  /** @throws CodedError, one sentence. */
  read(): ClusterAccess;
}

export function kubeconfigFile(path: string): AccessFile {
  return { name: `kubeconfig ${path}`, path, read: () => readKubeconfig(path) };
}

/** Returns access to the same API server with a client certificate, from a file with certificate and key that may be replaced.
 *  Until that file exists, the base credentials are used. */
export function withCertificate(base: AccessFile, name: string, file: string): AccessFile {
  return {
    name,
    path: file,
    read() {
      const access = base.read();
      if (!existsSync(file)) return access;
      return { cluster: access.cluster, user: { name: "default-auth", certFile: file, keyFile: file } };
    },
  };
}

/** Writes a kubeconfig with one context, readable only by its owner, atomically.
 *  @throws CodedError if it cannot be written. */
export async function writeKubeconfig(path: string, { cluster, user }: ClusterAccess): Promise<void> {
  const document = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "default-cluster", cluster: withoutEmpty(clusterFields(cluster)) }],
    users: [{ name: "default-auth", user: { "client-certificate": user.certFile, "client-key": user.keyFile } }],
    contexts: [{ name: "default-context", context: { cluster: "default-cluster", user: "default-auth" } }],
    "current-context": "default-context",
  };
  try {
    await mkdir(dirname(path), { recursive: true });
    await writeFileAtomically(path, stringify(document), 0o600);
  } catch (cause) {
    throw new CodedError(
      "permission_denied",
      `cannot write --kubeconfig ${path} (${messageOf(cause)}): make its directory writable, or set another path`,
      { cause },
    );
  }
}

function clusterFields(cluster: Cluster): Record<string, unknown> {
  return {
    server: cluster.server,
    "certificate-authority": cluster.caFile,
    "certificate-authority-data": cluster.caData,
    "insecure-skip-tls-verify": cluster.skipTLSVerify,
    "tls-server-name": cluster.tlsServerName,
    "proxy-url": cluster.proxyUrl,
  };
}

function withoutEmpty(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== false));
}

interface RawKubeconfig {
  readonly "current-context"?: unknown;
  readonly clusters?: unknown;
  readonly contexts?: unknown;
  readonly users?: unknown;
}

/** Reads the current context of a kubeconfig.
 *  @param path of the file; relative names inside it are relative to its folder.
 *  @throws CodedError invalid_argument (not_found when there is no such file), one sentence that names file, field and remedy.
 *  @see https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/ */
export function readKubeconfig(path: string): ClusterAccess {
  const raw = parseFile(path);
  const context = currentContext(path, raw);
  const cluster = named(
    path,
    "clusters",
    entries(path, () => newClusters(raw.clusters)),
    context.cluster,
  );
  const user = named(
    path,
    "users",
    entries(path, () => newUsers(withoutTokenFiles(raw.users))),
    context.user,
  );
  checkServer(path, cluster);
  if (user.authProvider)
    throw invalid(
      path,
      `user ${quote(user.name)} has an auth-provider, which is not supported; use exec, a token or a client certificate`,
    );
  return absolute(dirname(resolve(path)), cluster, user, tokenFileOf(raw.users, user.name));
}

function parseFile(path: string): RawKubeconfig {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    const code = codeOfErrno((error as NodeJS.ErrnoException).code);
    if (code === "not_found")
      throw new CodedError(code, `kubeconfig ${path} does not exist; specify one with --kubeconfig`, { cause: error });
    throw new CodedError(code, `kubeconfig ${path} cannot be read: ${messageOf(error)}`, { cause: error });
  }
  try {
    const raw: unknown = parse(text, { version: "1.1" });
    if (typeof raw === "object" && raw !== null) return raw;
  } catch (error) {
    throw new CodedError("invalid_argument", `kubeconfig ${path} is not YAML: ${messageOf(error)}`, { cause: error });
  }
  throw invalid(path, "contains no configuration; create one with `kubectl config`");
}

function currentContext(path: string, raw: RawKubeconfig): Context {
  const contexts = entries(path, () => newContexts(raw.contexts));
  const name = raw["current-context"];
  if (typeof name !== "string" || name === "") {
    throw invalid(
      path,
      `has no current-context; set it to one of its contexts (${contexts.map((context) => context.name).join(", ") || "there are none"})`,
    );
  }
  const context = contexts.find((one) => one.name === name);
  if (!context)
    throw invalid(
      path,
      `current-context ${quote(name)} is not among its contexts (${contexts.map((one) => one.name).join(", ") || "there are none"})`,
    );
  return context;
}

function named<T extends { readonly name: string }>(path: string, field: string, all: readonly T[], name: string): T {
  const found = all.find((one) => one.name === name);
  if (!found) throw invalid(path, `the current context names ${quote(name ?? "")}, which is not among the ${field}`);
  return found;
}

function entries<T>(path: string, read: () => T[]): T[] {
  try {
    return read();
  } catch (error) {
    throw new CodedError("invalid_argument", `kubeconfig ${path}: ${messageOf(error)}`, { cause: error });
  }
}

function checkServer(path: string, cluster: Cluster): void {
  const url = URL.canParse(cluster.server) ? new URL(cluster.server) : undefined;
  if (url?.protocol !== "https:" && url?.protocol !== "http:") {
    throw invalid(
      path,
      `cluster ${quote(cluster.name)} has server ${quote(cluster.server)}, which is not an http or https URL`,
    );
  }
  const proxy = cluster.proxyUrl;
  if (proxy && !/^https?:/.test(proxy))
    throw invalid(
      path,
      `cluster ${quote(cluster.name)} has proxy-url ${quote(proxy)}; only http and https proxies are supported`,
    );
}

/** Removes the token files, which are read separately, because the package uses a different name for the field than
 *  Kubernetes. */
function withoutTokenFiles(users: unknown): unknown {
  if (!Array.isArray(users)) return users;
  return users.map((entry: { user?: Record<string, unknown> | null }) =>
    entry?.user ? { ...entry, user: { ...entry.user, "token-file": undefined } } : entry,
  );
}

function tokenFileOf(users: unknown, name: string): string | undefined {
  if (!Array.isArray(users)) return undefined;
  const entry = users.find((one: { name?: unknown }) => one?.name === name) as
    | { user?: { tokenFile?: unknown } | null }
    | undefined;
  const file = entry?.user?.tokenFile;
  return typeof file === "string" && file !== "" ? file : undefined;
}

function absolute(folder: string, cluster: Cluster, user: User, tokenFile: string | undefined): ClusterAccess {
  return {
    cluster: { ...cluster, ...(cluster.caFile && { caFile: resolve(folder, cluster.caFile) }) },
    user: {
      ...user,
      ...(user.certFile && { certFile: resolve(folder, user.certFile) }),
      ...(user.keyFile && { keyFile: resolve(folder, user.keyFile) }),
    },
    ...(tokenFile && { tokenFile: resolve(folder, tokenFile) }),
  };
}

const quote = (text: string) => JSON.stringify(text);
const invalid = (path: string, what: string) => new CodedError("invalid_argument", `kubeconfig ${path}: ${what}`);
