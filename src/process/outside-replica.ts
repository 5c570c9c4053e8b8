import { randomUUID } from "node:crypto";
import { type ApiClient, createApiClient } from "../api/client.ts";
import { type AccessFile, kubeconfigFile } from "../api/kubeconfig.ts";
import type { ServiceAccountAccess, TokenSubject } from "../api/service-account.ts";
import type { JoinCommand, OptionsOf } from "../config/parse-result.ts";
import type { Replica } from "../fleet/own-lease.ts";
import { type Clock, systemClock } from "../lib/clock.ts";
import { CodedError, hasCode } from "../lib/errors.ts";
import { type ClockAndLog, createProcessLog, type Logger } from "../lib/log.ts";
import type { ConfigMap } from "../objects.ts";
import { graftletVersion } from "../version.ts";

/** A replica of a release whose process runs outside the cluster. */
export interface OutsideReplica {
  readonly replica: Replica;
  /** Its ServiceAccount, with the credentials of its kubeconfig. */
  readonly account: ServiceAccountAccess;
}

export type OutsideReplicaOptions = Omit<JoinCommand, "kind"> & {
  /** Runs the replica until the signal aborts. */
  readonly run: (
    options: OptionsOf<"run"> & { readonly outside: OutsideReplica },
    signal: AbortSignal,
  ) => Promise<boolean>;
  readonly signal: AbortSignal;
};

/** Rate limit of the few requests that are not about objects. */
const requests = { qps: 5, burst: 10 };
/** Retry delay while the API server does not respond, and interval at which the configuration is compared, milliseconds. */
const [retryMs, compareMs] = [2_000, 30_000];
/** Key of the configuration in the replica's ConfigMap. */
const configurationKey = "nodes.yaml";

/** Runs a process outside the cluster as a replica of a release until the signal aborts. Its kubeconfig says which ServiceAccount it has,
 *  and the release keeps its configuration in the ConfigMap of that name. If that changes, the replica hands its machines over, and ends.
 *  @returns false if it failed. @throws CodedError, one sentence, if the release does not know the replica. */
export async function runOutsideReplica(options: OutsideReplicaOptions): Promise<boolean> {
  const { kubeconfig, signal } = options;
  const clock = systemClock();
  const { log } = createProcessLog(options.logging, clock);
  const access = kubeconfigFile(kubeconfig);
  await using client = createApiClient({ access, clock, log, userAgent: `graftlet/${graftletVersion}`, ...requests });
  try {
    return await runUntilChanged(options, { access, client, clock, log });
  } catch (error) {
    if (signal.aborted) return true;
    throw error;
  }
}

interface Parts extends ClockAndLog {
  readonly access: AccessFile;
  readonly client: ApiClient;
}

async function runUntilChanged(
  { namespace, release, kubeconfig, complete, run, signal }: OutsideReplicaOptions,
  { access, client, clock, log }: Parts,
): Promise<boolean> {
  const waiting = { clock, log, signal };
  const account = await untilAnswered(() => ownAccount({ client, namespace, kubeconfig }, signal), waiting);
  const source = `ConfigMap ${namespace}/${account.name}`;
  const read = () => readConfiguration({ client, namespace, release, account, source }, signal);
  const configuration = await untilAnswered(read, waiting);
  const outside = {
    replica: { name: account.name, uid: `${account.uid}.${randomUUID().slice(0, 8)}`, accountUID: account.uid },
    account: { ...access, namespace: () => namespace, account: () => account, pod: () => undefined },
  };
  const over = new AbortController();
  const changed = untilChanged(read, configuration, { clock, log, signal: AbortSignal.any([signal, over.signal]) });
  try {
    return await run({ ...complete(source, configuration), outside }, AbortSignal.any([signal, changed.signal]));
  } finally {
    over.abort();
    await changed.ended;
  }
}

interface Asking {
  readonly client: Pick<ApiClient, "create" | "get">;
  readonly namespace: string;
}

/** Returns the ServiceAccount of the kubeconfig's credentials. @throws CodedError permission_denied if they are not those of one in the
 *  namespace. */
async function ownAccount(
  { client, namespace, kubeconfig }: Asking & { readonly kubeconfig: string },
  signal: AbortSignal,
): Promise<TokenSubject> {
  const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
  const path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
  const { status } = await client.create<SelfSubjectReview>(path, review, { signal });
  const { username = "nobody", uid = "" } = status?.userInfo ?? {};
  const prefix = `system:serviceaccount:${namespace}:`;
  if (username.startsWith(prefix) && uid !== "") return { name: username.slice(prefix.length), uid };
  throw new CodedError(
    "permission_denied",
    `kubeconfig ${kubeconfig} is that of ${username}: --fleet needs a token of a ServiceAccount of namespace ${namespace}, which fleet.outsideReplicas of the release creates`,
  );
}

interface SelfSubjectReview {
  readonly status?: { readonly userInfo?: { readonly username?: string; readonly uid?: string } };
}

interface ConfigurationAsking extends Asking {
  readonly release: string;
  readonly account: TokenSubject;
  readonly source: string;
}

/** Returns the replica's configuration. @throws CodedError failed_precondition if the release has none for it. */
async function readConfiguration(
  { client, namespace, release, account, source }: ConfigurationAsking,
  signal: AbortSignal,
): Promise<string> {
  const path = `/api/v1/namespaces/${namespace}/configmaps/${account.name}`;
  try {
    const { data } = await client.get<ConfigMap>(path, { signal });
    const text = data?.[configurationKey];
    if (text !== undefined) return text;
  } catch (error) {
    if (!hasCode(error, "not_found", "permission_denied")) throw error;
  }
  throw new CodedError(
    "failed_precondition",
    `ServiceAccount ${account.name} may not read ${source}: it is none of fleet.outsideReplicas of release ${release}; add it to the release's values`,
  );
}

interface Waiting extends ClockAndLog {
  readonly signal: AbortSignal;
}

/** Repeats a request until the API server responds. */
async function untilAnswered<T>(ask: () => Promise<T>, { clock, log, signal }: Waiting): Promise<T> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (signal.aborted || !hasCode(error, "unavailable", "deadline_exceeded")) throw error;
      log.warn({ err: error }, "cannot read the release's configuration; retrying");
      await clock.sleep(retryMs, signal);
    }
  }
}

/** Compares the configuration with the first one until it has changed. Failed requests are repeated. */
function untilChanged(read: () => Promise<string>, first: string, waiting: Waiting) {
  const change = new AbortController();
  return { signal: change.signal, ended: compare(read, first, { ...waiting, change }).catch(() => undefined) };
}

async function compare(
  read: () => Promise<string>,
  first: string,
  { clock, log, signal, change }: { clock: Clock; log: Logger; signal: AbortSignal; change: AbortController },
): Promise<void> {
  while (!signal.aborted && !change.signal.aborted) {
    await clock.sleep(compareMs, signal);
    const now = await read().catch(() => first);
    if (now === first) continue;
    log.info({}, "the release's configuration has changed; ending, to be started again with it");
    change.abort();
  }
}
