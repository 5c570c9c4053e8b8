import type { ImageCredentialSource } from "./keyring.ts";
import type { PullAccount, PullCredentials } from "./pull-records.ts";

/** The credentials of a pull as recorded. Images pulled anonymously or with the node's credentials are accessible to all pods of
 *  the node. */
export function toPullCredentials(source: ImageCredentialSource): PullCredentials {
  if (source?.secret) return { kubernetesSecrets: [source.secret] };
  if (source?.account) return { kubernetesServiceAccounts: [source.account] };
  return { nodePodsAccessible: true };
}

/** Adds credentials to the recorded ones. @returns undefined if that changes nothing. */
export function mergeCredentials(
  known: PullCredentials | undefined,
  added: PullCredentials,
): PullCredentials | undefined {
  if (known?.nodePodsAccessible) return undefined;
  if (added.nodePodsAccessible) return { nodePodsAccessible: true };
  const secrets = merged(
    known?.kubernetesSecrets,
    added.kubernetesSecrets,
    (one, other) => one.credentialHash === other.credentialHash,
  );
  const accounts = merged(known?.kubernetesServiceAccounts, added.kubernetesServiceAccounts, () => true);
  if (!secrets && !accounts) return undefined;
  return {
    ...known,
    ...(secrets && { kubernetesSecrets: secrets }),
    ...(accounts && { kubernetesServiceAccounts: accounts }),
  };
}

/** Key of the secret or service account that credentials came from, independent of its current content. */
export function sourceKey({ namespace, name, uid }: PullAccount): string {
  return [namespace, name, uid].join("/");
}

/** One entry per source, sorted; undefined if the added ones are already present. */
function merged<T extends PullAccount>(
  known: readonly T[] = [],
  added: readonly T[] = [],
  same: (one: T, other: T) => boolean,
): readonly T[] | undefined {
  const all = new Map(known.map((one) => [sourceKey(one), one]));
  const changes = added.filter((one) => {
    const before = all.get(sourceKey(one));
    return !before || !same(before, one);
  });
  if (changes.length === 0) return undefined;
  for (const one of changes) all.set(sourceKey(one), one);
  return [...all].toSorted(([one], [other]) => (one < other ? -1 : 1)).map(([, one]) => one);
}
