import { readFile } from "node:fs/promises";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { type Reloading, createReloading } from "../lib/reloading.ts";
import type { Service } from "../lib/service-group.ts";

/** Certificates in PEM by which callers of the kubelet API are known; undefined when there are none, or none are known yet. */
export type ClientCA = Reloading<string | undefined>;

const everyMs = 60_000;
/** The API server says it within this, milliseconds, or is asked again: until then callers with certificates are nobody. */
const answerMs = 10_000;

/** The bundle of KubeletConfiguration.authentication.x509.clientCAFile on graftlet's own machine, read again every minute.
 *  @throws CodedError invalid_argument, one sentence, when the file cannot be read at the start. */
export async function clientCAFromFile(path: string, deps: { clock: Clock; log: Logger }): Promise<ClientCA & Service> {
  const read = async () => {
    const text = await readFile(path, "utf8");
    if (!text.includes("-----BEGIN CERTIFICATE-----"))
      throw new CodedError("invalid_argument", "it holds no certificate in PEM");
    return text;
  };
  const initial = await read().catch((cause: unknown) => {
    const sentence = `authentication.x509.clientCAFile "${path}" cannot be used (${messageOf(cause)}): name a readable PEM file, or leave the field out`;
    throw new CodedError("invalid_argument", sentence, { cause });
  });
  return createReloading<string | undefined>({
    name: "client-ca-file",
    initial,
    read,
    same: Object.is,
    everyMs,
    ...deps,
  });
}

/** The cluster's client CA as the API server publishes it in the ConfigMap kube-system/extension-apiserver-authentication,
 *  read again every minute, sooner while there is none. None is known before the first answer.
 *  @param read gives the ConfigMap's `client-ca-file`; undefined when it has none.
 *  @see https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/ */
export function clientCAFromCluster(
  read: (signal: AbortSignal) => Promise<string | undefined>,
  deps: { clock: Clock; log: Logger },
): ClientCA & Service {
  return createReloading<string | undefined>({
    name: "cluster-client-ca",
    initial: undefined,
    read: (signal) => read(deps.clock.within(answerMs, signal)),
    same: Object.is,
    // A young API server publishes it some seconds after it has begun to answer.
    lacking: (ca) => ca === undefined,
    everyMs,
    ...deps,
  });
}
