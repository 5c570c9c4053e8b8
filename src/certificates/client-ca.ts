import { readFile } from "node:fs/promises";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import { createFileWatcher } from "../lib/file-watcher.ts";
import type { Logger } from "../lib/log.ts";
import { type Reloading, createReloading } from "../lib/reloading.ts";
import { type Runnable, onAbort } from "../lib/runnables.ts";

/** PEM certificates that authenticate callers of the kubelet API; undefined if there are none, or none yet. */
export type ClientCA = Reloading<string | undefined>;

const intervalMs = 60_000;
/** Timeout of the request to the API server, milliseconds; until it succeeds, client certificates are not accepted. */
const requestTimeoutMs = 10_000;

/** The bundle of KubeletConfiguration.authentication.x509.clientCAFile on graftlet's own machine, read again when it changes. @throws
 *  CodedError invalid_argument, one sentence, if the file is unreadable at startup. */
export async function clientCAFromFile(
  path: string,
  deps: { clock: Clock; log: Logger },
): Promise<ClientCA & Runnable> {
  const read = async () => {
    const text = await readFile(path, "utf8");
    if (!text.includes("-----BEGIN CERTIFICATE-----"))
      throw new CodedError("invalid_argument", "it contains no PEM certificate");
    return text;
  };
  const initial = await read().catch((cause: unknown) => {
    const sentence = `authentication.x509.clientCAFile "${path}" cannot be used (${messageOf(cause)}): set a readable PEM file, or omit the field`;
    throw new CodedError("invalid_argument", sentence, { cause });
  });
  return createReloading<string | undefined>({
    name: "client-ca-file",
    initial,
    read,
    same: Object.is,
    intervalMs,
    changed: createFileWatcher([path], deps.clock),
    ...deps,
  });
}

/** The cluster's client CA, which the API server publishes in the ConfigMap kube-system/extension-apiserver-authentication; read again
 *  every minute, more often while there is none. Undefined before the first response. @param read returns the ConfigMap's
 *  `client-ca-file`; undefined if it has none.
 *  @see https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/ */
export function clientCAFromCluster(
  read: (signal: AbortSignal) => Promise<string | undefined>,
  deps: { clock: Clock; log: Logger },
): ClientCA & Runnable {
  return createReloading<string | undefined>({
    name: "cluster-client-ca",
    initial: undefined,
    read: (signal) => read(deps.clock.within(requestTimeoutMs, signal)),
    same: Object.is,
    // A new API server publishes it some seconds after it starts to serve.
    isMissing: (ca) => ca === undefined,
    intervalMs,
    ...deps,
  });
}

/** No client CA: client certificates are not trusted. */
export const noClientCA: ClientCA & Runnable = {
  name: "no client CA",
  run: onAbort,
  current: () => undefined,
  onChange: () => () => undefined,
};
