import { abortError, messageOf } from "../../lib/errors.ts";
import type { Logger } from "../../lib/log.ts";
import type { Pod, Secret } from "../../objects.ts";
import type { EventSink, ObjectCache } from "../../pipeline.ts";
import { parseImageName } from "../../pod/image-name.ts";
import { podReference } from "../../pod/reference.ts";
import { StartError } from "../start-error.ts";
import { type ImageCredentials, credentialsFor, type Keyring, keyringOfSecrets } from "./keyring.ts";

/** Credentials for an image in addition to the pod's pull secrets. Failures are logged and skipped.
 *  @param repository fully qualified, such as `docker.io/library/busybox`. */
export type PodKeyring = (repository: string, pod: Pod, signal: AbortSignal) => Promise<Keyring>;

export interface PodCredentialsDeps {
  readonly objects: Pick<ObjectCache, "secret">;
  readonly events: EventSink;
  /** In the order in which they are tried, after the pod's pull secrets. */
  readonly keyrings: readonly PodKeyring[];
  readonly log: Logger;
}

/** A pod's credentials that may fit an image, looked up at the first call. @throws StartError ErrImagePull if a secret cannot be read. */
export type PodImageCredentials = () => Promise<readonly ImageCredentials[]>;

/** Reads a pod's pull secrets; the other keyrings are queried only when the credentials are needed. */
export async function podCredentials(
  deps: PodCredentialsDeps,
  pod: Pod,
  image: string,
  signal: AbortSignal,
): Promise<PodImageCredentials> {
  const secrets = await pullSecrets(deps, pod, signal);
  const find = async (): Promise<readonly ImageCredentials[]> => {
    const { repository } = parseImageName(image);
    try {
      const own = keyringOfSecrets(secrets);
      const others = await Promise.all(deps.keyrings.map((keyring) => keyring(repository, pod, signal)));
      return [own, ...others].flatMap((keyring) => credentialsFor(repository, keyring));
    } catch (error) {
      if (signal.aborted) throw abortError(signal);
      throw new StartError("ErrImagePull", messageOf(error), { cause: error });
    }
  };
  let found: ReturnType<PodImageCredentials> | undefined;
  return () => (found ??= find());
}

/** Reads pull secrets; unreadable ones are named in an event, and the pull is tried without them. */
async function pullSecrets(
  { objects, events, log }: PodCredentialsDeps,
  pod: Pod,
  signal: AbortSignal,
): Promise<readonly Secret[]> {
  const { namespace, name: podName } = pod.metadata;
  const found: Secret[] = [];
  const missing: string[] = [];
  for (const { name } of pod.spec.imagePullSecrets ?? []) {
    if (!name) continue;
    try {
      found.push(await objects.secret(namespace, name, signal));
    } catch (error) {
      if (signal.aborted) throw abortError(signal);
      log.info({ err: error, pod: `${namespace}/${podName}`, secret: name }, "cannot read image pull secret");
      missing.push(name);
    }
  }
  if (missing.length > 0) {
    const message = `Unable to retrieve some image pull secrets (${missing.join(", ")}); attempting to pull the image may not succeed.`;
    events.event(podReference(pod), "Warning", "FailedToRetrieveImagePullSecret", message);
  }
  return found;
}
