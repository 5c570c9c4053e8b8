import type { ApiClient } from "../api/client.ts";
import { secretPath, secretText } from "../api/secrets.ts";
import { CodedError, hasCode, ignoreNotFound } from "../lib/errors.ts";
import type { Secret } from "../objects.ts";
import { isSamePair, type PairStore, parsePair } from "./pair-store.ts";

export interface SecretStoreOptions {
  /** API with permission to get and patch the Secret. */
  readonly client: ApiClient;
  readonly namespace: string;
  /** An existing Secret. */
  readonly secret: string;
  /** The Secret as last seen, if the process watches it: a pair in it is used without a request. */
  readonly lastSeen?: (() => Secret | undefined) | undefined;
  /** Prefix of the Secret's keys; of letters, digits, `-`, `_` and `.`. */
  readonly name: string;
}

/** Stores a pair in a Secret of the cluster, under `NAME.pem`, and the key of the current request under `NAME.key`, so that a replacement
 *  Pod finds them again. Several pairs may share a Secret.
 *  @see https://kubernetes.io/docs/concepts/configuration/secret/ */
export function secretPairStore({ client, namespace, secret, lastSeen, name }: SecretStoreOptions): PairStore {
  const path = secretPath(namespace, secret);
  const request = async <T>(what: () => Promise<T>): Promise<T> => {
    try {
      return await what();
    } catch (cause) {
      if (!hasCode(cause, "not_found")) throw cause;
      throw new CodedError(
        "not_found",
        `certificateSecret ${JSON.stringify(secret)} does not exist in namespace ${namespace}: create it, empty`,
        { cause },
      );
    }
  };
  const valueOf = async (key: string, signal: AbortSignal): Promise<string> => {
    return secretText(await request(() => client.get<Secret>(path, { signal })), key);
  };
  const setValue = async (key: string, value: string | undefined, signal: AbortSignal): Promise<void> => {
    const data = { [key]: value === undefined ? null : Buffer.from(value).toString("base64") };
    await request(() => client.patch(path, { type: "merge", body: { data } }, { signal }));
  };
  return {
    read: async (signal) =>
      parsePair(secretText(lastSeen?.(), `${name}.pem`)) ?? parsePair(await valueOf(`${name}.pem`, signal)),
    write: (pair, _now, signal) => setValue(`${name}.pem`, `${pair.certificate}${pair.key}`, signal),
    pendingKey: async (signal) => (await valueOf(`${name}.key`, signal)) || undefined,
    storePendingKey: (key, signal) => setValue(`${name}.key`, key, signal),
  };
}

/** Stores a pair in a Secret of its own that was previously kept in another one. A pair that only the former Secret has is copied, and
 *  stays there, so that an older version of graftlet still finds it. The former Secret may be missing.
 *  @param onCopied called when a pair has been copied. */
export function copiedFrom(former: PairStore, own: PairStore, now: () => number, onCopied: () => void): PairStore {
  return {
    ...own,
    async read(signal) {
      const pair = await own.read(signal);
      if (pair) return pair;
      const copied = await ignoreNotFound(former.read(signal));
      if (!copied) return undefined;
      await own.write(copied, now(), signal);
      onCopied();
      return copied;
    },
  };
}

/** Combines two stores: files for other readers, and a Secret that outlives them. Contents that only the Secret has are written to files.
 *  */
export function backedBySecret(files: PairStore, secret: PairStore, now: () => number): PairStore {
  return {
    async read(signal) {
      const kept = await secret.read(signal);
      if (kept && !isSamePair(kept, await files.read(signal))) await files.write(kept, now(), signal);
      return kept;
    },
    async write(pair, at, signal) {
      await files.write(pair, at, signal);
      await secret.write(pair, at, signal);
    },
    pendingKey: (signal) => secret.pendingKey(signal),
    storePendingKey: (key, signal) => secret.storePendingKey(key, signal),
  };
}
