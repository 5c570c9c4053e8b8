import type { PullCredentials, PullSecret } from "./pull-records.ts";

/** Adds credentials to those on record. @returns undefined where that changes nothing. */
export function mergeCredentials(
  known: PullCredentials | undefined,
  added: PullCredentials,
): PullCredentials | undefined {
  const secrets = added.kubernetesSecrets ?? [];
  if (known?.nodePodsAccessible || (!added.nodePodsAccessible && secrets.length === 0)) return undefined;
  if (added.nodePodsAccessible) return { nodePodsAccessible: true };
  const all = new Map((known?.kubernetesSecrets ?? []).map((secret) => [placeOf(secret), secret]));
  const isNew = secrets.some((secret) => all.get(placeOf(secret))?.credentialHash !== secret.credentialHash);
  if (!isNew) return undefined;
  for (const secret of secrets) all.set(placeOf(secret), secret);
  const sorted = [...all].toSorted(([one], [other]) => (one < other ? -1 : 1)).map(([, secret]) => secret);
  return { ...known, kubernetesSecrets: sorted };
}

/** The secret that credentials came from, whatever is in it now. */
export function placeOf({ namespace, name, uid }: PullSecret): string {
  return [namespace, name, uid].join("/");
}
