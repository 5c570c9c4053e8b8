import type { ApiClient } from "../api/client.ts";
import { CodedError, hasCode } from "../lib/errors.ts";
import type { Secret } from "../objects.ts";
import { type PairStore, pairIn } from "./pair-store.ts";

export interface SecretStoreOptions {
  /** May get and patch the secret. */
  readonly client: ApiClient;
  readonly namespace: string;
  /** Of a secret that is there already. */
  readonly secret: string;
  /** Leads the secret's keys; of letters, digits, `-`, `_` and `.`. */
  readonly name: string;
}

/** Keeps a pair in a secret of the cluster, under `NAME.pem`, and the key of a request that is under way under `NAME.key`: a Pod
 *  that is replaced finds them again. Several pairs may share a secret.
 *  @see https://kubernetes.io/docs/concepts/configuration/secret/ */
export function secretPairStore({ client, namespace, secret, name }: SecretStoreOptions): PairStore {
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets/${encodeURIComponent(secret)}`;
  const asked = async <T>(what: () => Promise<T>): Promise<T> => {
    try {
      return await what();
    } catch (cause) {
      if (!hasCode(cause, "not_found")) throw cause;
      throw new CodedError(
        "not_found",
        `certificateSecret ${JSON.stringify(secret)} is not in namespace ${namespace}: create it, empty`,
        { cause },
      );
    }
  };
  const valueOf = async (key: string, signal: AbortSignal): Promise<string> => {
    const { data } = await asked(() => client.get<Secret>(path, { signal }));
    return Buffer.from(data?.[key] ?? "", "base64").toString("utf8");
  };
  const setValue = async (key: string, value: string | undefined, signal: AbortSignal): Promise<void> => {
    const data = { [key]: value === undefined ? null : Buffer.from(value).toString("base64") };
    await asked(() => client.patch(path, { type: "merge", body: { data } }, { signal }));
  };
  return {
    read: async (signal) => pairIn(await valueOf(`${name}.pem`, signal)),
    write: (pair, _now, signal) => setValue(`${name}.pem`, `${pair.certificate}${pair.key}`, signal),
    pendingKey: async (signal) => (await valueOf(`${name}.key`, signal)) || undefined,
    keepPendingKey: (key, signal) => setValue(`${name}.key`, key, signal),
  };
}

/** Two stores as one: files that others read, and a secret that outlives them. What only the secret has is put into files. */
export function outlivedBy(files: PairStore, secret: PairStore, now: () => number): PairStore {
  return {
    async read(signal) {
      const kept = await secret.read(signal);
      if (kept) await files.write(kept, now(), signal);
      return kept;
    },
    async write(pair, at, signal) {
      await files.write(pair, at, signal);
      await secret.write(pair, at, signal);
    },
    pendingKey: (signal) => secret.pendingKey(signal),
    keepPendingKey: (key, signal) => secret.keepPendingKey(key, signal),
  };
}
