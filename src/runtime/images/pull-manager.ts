import type { ClockAndLog } from "../../lib/log.ts";
import { bareName } from "../../pod/image-name.ts";
import type { Images } from "../../seams/runtime.ts";
import type { ImageCredentialSource } from "./keyring.ts";
import { createPullRecordCache } from "./pull-record-cache.ts";
import { toPullCredentials, sourceKey } from "./pull-credentials.ts";
import type { PullAccount, PullRecords, PullSecret } from "./pull-records.ts";
import type { NeedsVerification } from "./verification-policy.ts";

/** How it was decided whether a pod may use an image that is present on the node. */
export type PullCheck = "credentialPolicyAllowed" | "credentialRecordFound" | "mustAuthenticate" | "error";

/** Checks of access to present images. */
export interface PullCheckMeasures {
  checked(result: PullCheck): void;
}

export interface PullManagerDeps extends ClockAndLog {
  readonly runtime: Pick<Images, "listImages">;
  readonly records: PullRecords;
  readonly needsVerification: NeedsVerification;
  readonly measures: PullCheckMeasures;
}

/** A pull that has begun and whose intent is recorded. */
export interface PullIntent {
  /** @param source source of the credentials that the registry accepted; undefined if it asked for none, or accepted the node's. */
  succeeded(imageRef: string, source: ImageCredentialSource): Promise<void>;
  failed(): Promise<void>;
}

/** Access to images that were pulled with a pod's secret or for its service account: another pod may use such an image only with
 *  credentials that the registry accepted before, or accepts now. */
export type PullManager = ReturnType<typeof createPullManager>;

type SourcesOf = () => Promise<readonly ImageCredentialSource[]>;

/** With this many recorded secrets, secrets that match only by name or only by content are no longer added: short-lived namespaces
 *  would make the record grow without limit. */
const maxLooselyMatchedSecrets = 100;

/** @see https://kubernetes.io/docs/concepts/containers/images/#ensureimagepullcredentialverification */
export function createPullManager(deps: PullManagerDeps) {
  const { needsVerification, measures, log } = deps;
  const records = createPullRecordCache(deps);

  const check = async (image: string, imageRef: string, sourcesOf: SourcesOf): Promise<PullCheck> => {
    if (!needsVerification(image, true)) return "credentialPolicyAllowed";
    await records.adoptIntents();
    const record = await records.record(imageRef);
    const pulledByNode = record !== undefined || records.isInProgress(image);
    if (!needsVerification(image, pulledByNode)) return "credentialPolicyAllowed";
    const credentials = record?.credentials.get(bareName(image));
    if (credentials?.nodePodsAccessible) return "credentialRecordFound";
    const { kubernetesSecrets: secrets = [], kubernetesServiceAccounts: accounts = [] } = credentials ?? {};
    if (secrets.length === 0 && accounts.length === 0) return "mustAuthenticate";
    const sources = await sourcesOf();
    const matching = matchingSecret(secrets, sources);
    if (matching?.isNew) await records.add(image, imageRef, { kubernetesSecrets: [matching.secret] });
    return matching || hasAccount(accounts, sources) ? "credentialRecordFound" : "mustAuthenticate";
  };

  return {
    /** True if a pod may use a present image only after a successful pull with its own credentials.
     *  @param image its name in the pod's spec.
     *  @param sourcesOf sources of the pod's credentials for the image; called only if needed. */
    async mustPull(image: string, imageRef: string, sourcesOf: SourcesOf) {
      let result: PullCheck = "error";
      try {
        result = await check(image, imageRef, sourcesOf);
      } catch (err) {
        log.warn({ err, image }, "cannot check image pull records; verifying the pod's credentials");
      }
      measures.checked(result);
      return result === "mustAuthenticate" || result === "error";
    },
    /** @throws when it cannot be recorded. */
    async begin(image: string): Promise<PullIntent> {
      await records.begin(image);
      return {
        async succeeded(imageRef, source) {
          // If the image cannot be recorded, its pull intent is kept.
          if (await records.add(image, imageRef, toPullCredentials(source))) await records.end(image);
        },
        failed: () => records.end(image),
      };
    },
    /** Forgets images that are gone, except those pulled after `since`. @param since milliseconds since the epoch. */
    prune: records.prune,
  };
}

/** The first of a pod's secrets that matches a recorded one by name or by content.
 *  @returns the secret, and whether to add it to the record for later pods. */
function matchingSecret(
  recorded: readonly PullSecret[],
  sources: readonly ImageCredentialSource[],
): { readonly secret: PullSecret; readonly isNew: boolean } | undefined {
  const mayAdd = recorded.length < maxLooselyMatchedSecrets;
  for (const secret of sources.flatMap((source) => source?.secret ?? [])) {
    const sameSource = recorded.find((one) => sourceKey(one) === sourceKey(secret));
    const contentMatches = secret.credentialHash !== "" && recorded.some((one) => hasSameContent(one, secret));
    if (contentMatches || (sameSource && mayAdd))
      return { secret, isNew: mayAdd && !(sameSource && hasSameContent(sameSource, secret)) };
  }
  return undefined;
}

/** True if a plugin has credentials for the pod on behalf of a recorded service account; a pod has only one. */
function hasAccount(recorded: readonly PullAccount[], sources: readonly ImageCredentialSource[]): boolean {
  const own = sources.find((source) => source?.account)?.account;
  return own !== undefined && recorded.some((one) => sourceKey(one) === sourceKey(own));
}

function hasSameContent(one: PullSecret, other: PullSecret): boolean {
  return one.credentialHash === other.credentialHash;
}
