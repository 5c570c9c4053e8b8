import { AuthConfig, type Image, ImageSpec, type PodSandboxConfig, PullImageRequest } from "../../gen/cri.ts";
import { type Backoff, createBackoff } from "../../lib/backoff.ts";
import type { Clock } from "../../lib/clock.ts";
import { abortError, messageOf } from "../../lib/errors.ts";
import { goDuration } from "../../lib/go-duration.ts";
import { createSemaphore } from "../../lib/semaphore.ts";
import { createTokenBucket } from "../../lib/token-bucket.ts";
import type { Container, ObjectReference, Pod } from "../../objects.ts";
import { defaultPullPolicy, withDefaultTag } from "../../pod/image-name.ts";
import { containerReference, podReference } from "../../pod/reference.ts";
import type { Images } from "../../seams/runtime.ts";
import { runtimeErrorText } from "../../pod/error-text.ts";
import { StartError } from "../start-error.ts";
import type { ImageCredentials, ImageCredentialSource } from "./keyring.ts";
import { watchLongPull } from "./long-pull.ts";
import { type PodImageCredentials, type PodCredentialsDeps, podCredentials } from "./pod-credentials.ts";
import { joinedErrorText, pullFailure } from "./pull-error.ts";
import type { PullManager } from "./pull-manager.ts";
import { imageVolumes } from "../../pod/object-references.ts";

export interface PullMeasures {
  /** @returns a function to call when the pull has succeeded. @param bytes of the image. */
  pulling(uid: string): (ms: number, bytes: bigint) => void;
  /** An image was requested. @param present undefined if presence was not checked. @param pulled true if it had to be pulled;
   *  undefined if that was not decided. */
  ensured(policy: string, present: boolean | undefined, pulled: boolean | undefined): void;
}

export interface ImagePullerDeps extends PodCredentialsDeps {
  readonly images: Pick<Images, "imageStatus" | "pullImage">;
  readonly clock: Clock;
  readonly measures: PullMeasures;
  /** Decides which pods may use a present image; without it all may. */
  readonly pullManager: PullManager | undefined;
  /** KubeletConfiguration.serializeImagePulls: one pull at a time. */
  readonly serialize: boolean;
  /** KubeletConfiguration.maxParallelImagePulls; undefined or below 1 for no limit. */
  readonly maxParallel: number | undefined;
  /** KubeletConfiguration.registryPullQPS and registryBurst. */
  readonly qps: number;
  readonly burst: number;
}

export interface EnsuredImage {
  /** The runtime's reference for the image. */
  readonly imageRef: string;
  /** The runtime's image status, if it was queried. */
  readonly image?: Image;
}

/** Image volumes of a pod, by volume name, as the runtime mounts them. */
export type VolumeImages = ReadonlyMap<string, ImageSpec>;

export type ImagePuller = ReturnType<typeof createImagePuller>;

interface PullerState extends ImagePullerDeps {
  /** Limits concurrent pulls, first come first served. */
  readonly limit: ReturnType<typeof createSemaphore>;
  readonly mayPull: () => boolean;
  readonly backoff: Backoff;
  /** Last pull failure by back-off key, kept as long as the back-off. */
  readonly lastFailures: Map<string, string>;
}

interface PullRequest {
  readonly pod: Pod;
  readonly about: ObjectReference;
  /** The name in the spec, as shown in events and messages. */
  readonly requested: string;
  readonly spec: ImageSpec;
  readonly sandbox: PodSandboxConfig;
  readonly seen: Image | undefined;
  readonly credentials: PodImageCredentials;
}

const backoffMs = { initialMs: 10_000, maxMs: 300_000 };

/** @see https://kubernetes.io/docs/concepts/containers/images/ */
export function createImagePuller(deps: ImagePullerDeps) {
  const { clock, serialize, maxParallel } = deps;
  const slots = serialize ? 1 : maxParallel !== undefined && maxParallel >= 1 ? maxParallel : Infinity;
  const puller: PullerState = {
    ...deps,
    limit: createSemaphore(slots),
    mayPull: createTokenBucket(clock, deps.qps, deps.burst),
    backoff: createBackoff({ clock, ...backoffMs }),
    lastFailures: new Map(),
  };
  return {
    /** The image on the target, if the container's pull policy accepts a present image. @throws the runtime's errors. */
    async findPresent(pod: Pod, container: Container, signal: AbortSignal) {
      const image = withDefaultTag(container.image ?? "");
      return policyOf(container.imagePullPolicy, image) === "Always"
        ? undefined
        : deps.images.imageStatus(specOf(pod, image), signal);
    },
    /** Ensures that a container's image is on the target, pulling it according to its policy. The signal interrupts waits and pulls.
     *  @param seen result of `findPresent`.
     *  @throws StartError InvalidImageName, ImageInspectError, ErrImageNeverPull, ErrImagePull, ImagePullBackOff, RegistryUnavailable or
     *  SignatureValidationFailed, those with a back-off with `retryAt`. */
    ensure: (
      pod: Pod,
      { name, image: requested = "", imagePullPolicy }: Container,
      sandbox: PodSandboxConfig,
      signal: AbortSignal,
      seen?: Image,
    ) =>
      ensure(puller, { pod, about: containerReference(pod, name), requested, sandbox, seen }, imagePullPolicy, signal),
    /** Ensures the images of a container's image volumes; a failing one does not block the others. The signal interrupts as above.
     *  @throws StartError as above.
     *  @see https://kubernetes.io/docs/concepts/storage/volumes/#image */
    ensureVolumes: (pod: Pod, container: Container, sandbox: PodSandboxConfig, signal: AbortSignal) =>
      ensureVolumes(puller, { pod, container, sandbox }, signal),
  };
}

/** Findings for metrics; undefined if not checked. */
interface EnsureFindings {
  isPresent?: boolean;
  isPulled?: boolean;
}

async function ensure(
  puller: PullerState,
  request: Omit<PullRequest, "spec" | "credentials">,
  pullPolicy: string | undefined,
  signal: AbortSignal,
): Promise<EnsuredImage> {
  const findings: EnsureFindings = {};
  try {
    return await findOrPull(puller, request, pullPolicy, findings, signal);
  } finally {
    puller.measures.ensured(pullPolicy ?? "IfNotPresent", findings.isPresent, findings.isPulled);
  }
}

async function findOrPull(
  puller: PullerState,
  request: Omit<PullRequest, "spec" | "credentials">,
  pullPolicy: string | undefined,
  findings: EnsureFindings,
  signal: AbortSignal,
): Promise<EnsuredImage> {
  const { pod, about, requested } = request;
  const image = taggedName(puller, about, requested);
  const credentials = await podCredentials(puller, pod, image, signal);
  const wanted: PullRequest = { ...request, spec: specOf(pod, image), credentials };
  const policy = policyOf(pullPolicy, image);
  const onNode =
    policy === "Always" ? undefined : (request.seen ?? (await inspect(puller, about, wanted.spec, signal)));
  if (policy !== "Always") findings.isPresent = onNode !== undefined;
  const usable = onNode && (await mayUse(puller, wanted, onNode)) ? onNode : undefined;
  if (onNode || policy !== "Never") findings.isPulled = usable === undefined;
  if (usable) {
    const checked = puller.pullManager ? " and can be accessed by the pod" : "";
    puller.events.event(
      about,
      "Normal",
      "Pulled",
      `Container image "${requested}" already present on machine${checked}`,
    );
    return { imageRef: usable.id, image: usable };
  }
  if (policy === "Never") throw neverPullError(puller, wanted);
  return pull(puller, wanted, signal);
}

async function mayUse({ pullManager }: PullerState, wanted: PullRequest, { id }: Image): Promise<boolean> {
  const sourcesOf = async () => (await wanted.credentials()).map(({ source }) => source);
  return !(await pullManager?.mustPull(wanted.requested, id, sourcesOf));
}

/** Also reported for a present image that the pod may not use, so as not to reveal that it is there. */
function neverPullError({ events }: PullerState, { about, requested }: PullRequest): StartError {
  const message = `Container image "${requested}" is not present with pull policy of Never`;
  events.event(about, "Warning", "ErrImageNeverPull", message);
  return new StartError("ErrImageNeverPull", message);
}

async function ensureVolumes(
  puller: PullerState,
  { pod, container, sandbox }: { readonly pod: Pod; readonly container: Container; readonly sandbox: PodSandboxConfig },
  signal: AbortSignal,
): Promise<VolumeImages> {
  const images = new Map<string, ImageSpec>();
  let failure: StartError | undefined;
  for (const { name, image } of imageVolumes(pod, container)) {
    const { reference: requested = "", pullPolicy } = image;
    const request = { pod, about: podReference(pod), requested, sandbox, seen: undefined };
    try {
      const { imageRef } = await ensure(puller, request, pullPolicy, signal);
      images.set(name, ImageSpec.fromPartial({ ...specOf(pod, imageRef), userSpecifiedImage: requested }));
    } catch (error) {
      if (!(error instanceof StartError)) throw error;
      failure = error;
    }
  }
  if (failure) throw failure;
  return images;
}

function specOf({ metadata }: Pod, image: string): ImageSpec {
  return ImageSpec.fromPartial({ image, annotations: { ...metadata.annotations } });
}

function policyOf(pullPolicy: string | undefined, image: string): string {
  return pullPolicy ?? defaultPullPolicy(image);
}

function taggedName({ events }: PullerState, about: ObjectReference, requested: string): string {
  try {
    return withDefaultTag(requested);
  } catch (error) {
    const message = `Failed to apply default image tag ${JSON.stringify(requested)}: ${messageOf(error)}`;
    events.event(about, "Warning", "InspectFailed", message);
    throw new StartError("InvalidImageName", message, { cause: error });
  }
}

async function inspect(
  { images, events }: PullerState,
  about: ObjectReference,
  spec: ImageSpec,
  signal: AbortSignal,
): Promise<Image | undefined> {
  try {
    return await images.imageStatus(spec, signal);
  } catch (error) {
    if (signal.aborted) throw abortError(signal);
    const message = `Failed to inspect image ${JSON.stringify(spec.image)}: ${runtimeErrorText(error)}`;
    events.event(about, "Warning", "InspectFailed", message);
    throw new StartError("ImageInspectError", message, { cause: error });
  }
}

async function pull(puller: PullerState, wanted: PullRequest, signal: AbortSignal): Promise<EnsuredImage> {
  const { events, clock, limit, measures } = puller;
  const { about, requested } = wanted;
  const credentials = await wanted.credentials();
  const key = `${wanted.pod.metadata.uid}_${requested}`;
  checkBackoff(puller, wanted, key);
  events.event(about, "Normal", "Pulling", `Pulling image "${requested}"`);
  const requestedAt = clock.monotonic();
  const recordSuccess = measures.pulling(wanted.pod.metadata.uid);
  const { imageRef, pullMs, image, errors } = await recordPull(puller, wanted, () =>
    limit(() => pullNow(puller, wanted, credentials, signal), signal),
  );
  if (imageRef === undefined) throw pullFailed(puller, wanted, key, errors);
  const tookMs = clock.monotonic() - requestedAt;
  recordSuccess(tookMs, image?.size ?? 0n);
  const took = `${goDuration(Math.trunc(pullMs))} (${goDuration(Math.trunc(tookMs))} including waiting)`;
  events.event(
    about,
    "Normal",
    "Pulled",
    `Successfully pulled image "${requested}" in ${took}. Image size: ${image?.size ?? 0n} bytes.`,
  );
  dropExpired(puller);
  return { imageRef, ...(image?.id === imageRef && { image }) };
}

/** Records the pull intent and the outcome of a pull. */
async function recordPull(
  { pullManager }: PullerState,
  { requested }: PullRequest,
  work: () => Promise<PullOutcome>,
): Promise<PullOutcome> {
  const intent = await pullManager?.begin(requested).catch((error: unknown) => {
    const message = `Failed to record image pull intent for container image "${requested}": ${messageOf(error)}`;
    throw new StartError("ErrImagePull", message, { cause: error });
  });
  let outcome: PullOutcome | undefined;
  try {
    return (outcome = await work());
  } finally {
    if (outcome?.imageRef === undefined) await intent?.failed();
    else await intent?.succeeded(outcome.image?.id ?? outcome.imageRef, outcome.acceptedSource);
  }
}

/** @throws StartError ImagePullBackOff while the last failure is too recent. */
function checkBackoff(
  { backoff, clock, events, lastFailures }: PullerState,
  { about, requested }: PullRequest,
  key: string,
): void {
  const waitMs = backoff.remaining(key);
  const why = lastFailures.get(key);
  if (waitMs <= 0) {
    lastFailures.delete(key);
    return;
  }
  const message = `Back-off pulling image "${requested}"`;
  events.event(about, "Normal", "BackOff", message);
  throw new StartError("ImagePullBackOff", why === undefined ? message : `${message}: ${why}`, {
    retryAt: clock.now() + waitMs,
  });
}

interface PullOutcome {
  readonly imageRef: string | undefined;
  readonly pullMs: number;
  /** The image that the name now refers to. */
  readonly image?: Image | undefined;
  /** Source of the credentials that the registry accepted; undefined if it asked for none, or accepted the node's. */
  readonly acceptedSource?: ImageCredentialSource;
  /** Errors, one per attempt; empty on success. */
  readonly errors: readonly unknown[];
}

/** Tries the matching credentials one after another; without any, pulls anonymously. */
async function pullNow(
  puller: PullerState,
  wanted: PullRequest,
  credentials: readonly ImageCredentials[],
  signal: AbortSignal,
): Promise<PullOutcome> {
  const { clock, images } = puller;
  const startedAt = clock.monotonic();
  if (!puller.mayPull()) return { imageRef: undefined, pullMs: 0, errors: [new Error("pull QPS exceeded")] };
  const { spec: image, sandbox: sandboxConfig } = wanted;
  const errors: unknown[] = [];
  using progress = watchLongPull(clock, (howFar) =>
    puller.events.event(wanted.about, "Normal", "Pulling", `Still pulling image "${wanted.requested}": ${howFar}`),
  );
  for (const login of credentials.length > 0 ? credentials : [undefined]) {
    const auth = login && AuthConfig.fromPartial({ username: login.username, password: login.password });
    try {
      const request = PullImageRequest.fromPartial({ image, auth, sandboxConfig });
      const imageRef = await images.pullImage(request, signal, progress.onProgress);
      // The size is informational: failing to read it is not an error.
      const pulled = await images.imageStatus(image, signal).catch(() => undefined);
      return {
        imageRef,
        pullMs: clock.monotonic() - startedAt,
        image: pulled,
        acceptedSource: login?.source,
        errors: [],
      };
    } catch (error) {
      if (signal.aborted) throw abortError(signal);
      errors.push(error);
    }
  }
  return { imageRef: undefined, pullMs: clock.monotonic() - startedAt, errors };
}

function pullFailed(
  puller: PullerState,
  { about, requested }: PullRequest,
  key: string,
  errors: readonly unknown[],
): StartError {
  const { backoff, clock, events, lastFailures } = puller;
  events.event(about, "Warning", "Failed", `Failed to pull image "${requested}": ${joinedErrorText(errors)}`);
  const { reason, message } = pullFailure(requested, errors);
  const retryAt = clock.now() + backoff.next(key);
  lastFailures.set(key, `${reason}: ${message}`);
  dropExpired(puller);
  return new StartError(reason, message, { cause: errors[0], retryAt });
}

function dropExpired({ backoff, lastFailures }: PullerState): void {
  backoff.collect();
  for (const key of lastFailures.keys()) if (backoff.delay(key) === 0) lastFailures.delete(key);
}
