import type { Clock } from "../../lib/clock.ts";
import type { Logger } from "../../lib/log.ts";
import type { PullCheck, PullMeasures } from "../../measures.ts";
import { bareName } from "../../pod/image-name.ts";
import type { Images } from "../../seams/runtime.ts";
import { createKnownPulls } from "./known-pulls.ts";
import { placeOf } from "./pull-credentials.ts";
import type { PullRecords, PullSecret } from "./pull-records.ts";
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
  /** @param secret whose credentials the registry took; undefined where it asked for none. */
  succeeded(imageRef: string, secret: PullSecret | undefined): Promise<void>;
  failed(): Promise<void>;
}

/** Images that were pulled with a pod's secret are its tenant's: another pod uses one only with credentials that the registry took
 *  before, or takes now. */
export interface PullManager {
  /** True when a pod may use an image on the node only once a pull with its own credentials has worked.
   *  @param image its name in the pod's spec.
   *  @param secretsOf the pod's credentials for the image; not called where nothing depends on them. */
  mustPull(image: string, imageRef: string, secretsOf: () => readonly PullSecret[]): Promise<boolean>;
  /** @throws when it cannot be put on record. */
  begin(image: string): Promise<BegunPull>;
  /** Forgets images that are no longer there, but for those pulled since. @param since milliseconds since the epoch. */
  prune(imageRefs: readonly string[], since: number): Promise<void>;
}

/** Secrets on record from which on those that fit only by their place or their content are not added: namespaces that come and go would
 *  make it grow. */
const manySecrets = 100;

/** @see https://kubernetes.io/docs/concepts/containers/images/#ensureimagepullcredentialverification */
export function createPullManager(deps: PullManagerDeps): PullManager {
  const { needsVerification, measures, log } = deps;
  const known = createKnownPulls(deps);

  const check = async (image: string, imageRef: string, secretsOf: () => readonly PullSecret[]): Promise<PullCheck> => {
    if (!needsVerification(image, true)) return "credentialPolicyAllowed";
    await known.takeOver();
    const record = await known.record(imageRef);
    const pulledByNode = record !== undefined || known.isUnderWay(image);
    if (!needsVerification(image, pulledByNode)) return "credentialPolicyAllowed";
    const credentials = record?.credentials.get(bareName(image));
    if (credentials?.nodePodsAccessible) return "credentialRecordFound";
    const onRecord = credentials?.kubernetesSecrets ?? [];
    for (const secret of onRecord.length > 0 ? secretsOf() : []) {
      const atPlace = onRecord.find((one) => placeOf(one) === placeOf(secret));
      const hasContent = secret.credentialHash !== "" && onRecord.some((one) => isContentOf(one, secret));
      const mayAdd = onRecord.length < manySecrets;
      if (!hasContent && !(atPlace && mayAdd)) continue;
      if (mayAdd && !(atPlace && isContentOf(atPlace, secret)))
        await known.add(image, imageRef, { kubernetesSecrets: [secret] });
      return "credentialRecordFound";
    }
    return "mustAuthenticate";
  };

  return {
    async mustPull(image, imageRef, secretsOf) {
      let result: PullCheck = "error";
      try {
        result = await check(image, imageRef, secretsOf);
      } catch (err) {
        log.warn({ err, image }, "who may use an image is not known: the pod's credentials are verified");
      }
      measures.checked(result);
      return result === "mustAuthenticate" || result === "error";
    },
    async begin(image) {
      await known.begin(image);
      return {
        async succeeded(imageRef, secret) {
          const credentials = secret ? { kubernetesSecrets: [secret] } : { nodePodsAccessible: true };
          // An image that could not be put on record stays there as one whose pull has begun.
          if (await known.add(image, imageRef, credentials)) await known.end(image);
        },
        failed: () => known.end(image),
      };
    },
    prune: known.prune,
  };
}

function isContentOf(one: PullSecret, other: PullSecret): boolean {
  return one.credentialHash === other.credentialHash;
}
