import type { Clock } from "../../lib/clock.ts";
import type { Logger } from "../../lib/log.ts";
import type { PullCheck, PullMeasures } from "../../measures.ts";
import { bareName } from "../../pod/image-name.ts";
import type { Images } from "../../seams/runtime.ts";
import type { CredentialSource } from "./keyring.ts";
import { createKnownPulls } from "./known-pulls.ts";
import { credentialsOnRecord, placeOf } from "./pull-credentials.ts";
import type { PullAccount, PullRecords, PullSecret } from "./pull-records.ts";
import type { NeedsVerification } from "./verification-policy.ts";

export interface PullManagerDeps {
  readonly runtime: Pick<Images, "listImages">;
  readonly records: PullRecords;
  readonly needsVerification: NeedsVerification;
  readonly measures: Pick<PullMeasures, "checked">;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A pull that has begun, and is on record as that. */
export interface BegunPull {
  /** @param source of the credentials that the registry took; undefined where it asked for none, or took the node's. */
  succeeded(imageRef: string, source: CredentialSource): Promise<void>;
  failed(): Promise<void>;
}

/** Images that were pulled with a pod's secret, or for its service account, are its tenant's: another pod uses one only with credentials
 *  that the registry took before, or takes now. */
export interface PullManager {
  /** True when a pod may use an image on the node only once a pull with its own credentials has worked.
   *  @param image its name in the pod's spec.
   *  @param sourcesOf those of the pod's credentials for the image; not called where nothing depends on them. */
  mustPull(image: string, imageRef: string, sourcesOf: SourcesOf): Promise<boolean>;
  /** @throws when it cannot be put on record. */
  begin(image: string): Promise<BegunPull>;
  /** Forgets images that are no longer there, but for those pulled since. @param since milliseconds since the epoch. */
  prune(imageRefs: readonly string[], since: number): Promise<void>;
}

type SourcesOf = () => Promise<readonly CredentialSource[]>;

/** Secrets on record from which on those that fit only by their place or their content are not added: namespaces that come and go would
 *  make it grow. */
const manySecrets = 100;

/** @see https://kubernetes.io/docs/concepts/containers/images/#ensureimagepullcredentialverification */
export function createPullManager(deps: PullManagerDeps): PullManager {
  const { needsVerification, measures, log } = deps;
  const known = createKnownPulls(deps);

  const check = async (image: string, imageRef: string, sourcesOf: SourcesOf): Promise<PullCheck> => {
    if (!needsVerification(image, true)) return "credentialPolicyAllowed";
    await known.takeOver();
    const record = await known.record(imageRef);
    const pulledByNode = record !== undefined || known.isUnderWay(image);
    if (!needsVerification(image, pulledByNode)) return "credentialPolicyAllowed";
    const credentials = record?.credentials.get(bareName(image));
    if (credentials?.nodePodsAccessible) return "credentialRecordFound";
    const { kubernetesSecrets: secrets = [], kubernetesServiceAccounts: accounts = [] } = credentials ?? {};
    if (secrets.length === 0 && accounts.length === 0) return "mustAuthenticate";
    const sources = await sourcesOf();
    const fitting = fittingSecret(secrets, sources);
    if (fitting?.isNew) await known.add(image, imageRef, { kubernetesSecrets: [fitting.secret] });
    return fitting || hasAccount(accounts, sources) ? "credentialRecordFound" : "mustAuthenticate";
  };

  return {
    async mustPull(image, imageRef, sourcesOf) {
      let result: PullCheck = "error";
      try {
        result = await check(image, imageRef, sourcesOf);
      } catch (err) {
        log.warn({ err, image }, "who may use an image is not known: the pod's credentials are verified");
      }
      measures.checked(result);
      return result === "mustAuthenticate" || result === "error";
    },
    async begin(image) {
      await known.begin(image);
      return {
        async succeeded(imageRef, source) {
          // An image that could not be put on record stays there as one whose pull has begun.
          if (await known.add(image, imageRef, credentialsOnRecord(source))) await known.end(image);
        },
        failed: () => known.end(image),
      };
    },
    prune: known.prune,
  };
}

/** The first of a pod's secrets that fits one on record: by its place, or by its content.
 *  @returns with whether it is to be put on record, for those that come after. */
function fittingSecret(
  onRecord: readonly PullSecret[],
  sources: readonly CredentialSource[],
): { readonly secret: PullSecret; readonly isNew: boolean } | undefined {
  const mayAdd = onRecord.length < manySecrets;
  for (const secret of sources.flatMap((source) => source?.secret ?? [])) {
    const atPlace = onRecord.find((one) => placeOf(one) === placeOf(secret));
    const hasContent = secret.credentialHash !== "" && onRecord.some((one) => isContentOf(one, secret));
    if (hasContent || (atPlace && mayAdd))
      return { secret, isNew: mayAdd && !(atPlace && isContentOf(atPlace, secret)) };
  }
  return undefined;
}

/** Whether a plugin has credentials for the pod in the name of a service account that is on record; a pod has but one. */
function hasAccount(onRecord: readonly PullAccount[], sources: readonly CredentialSource[]): boolean {
  const own = sources.find((source) => source?.account)?.account;
  return own !== undefined && onRecord.some((one) => placeOf(one) === placeOf(own));
}

function isContentOf(one: PullSecret, other: PullSecret): boolean {
  return one.credentialHash === other.credentialHash;
}
