import type { Image, PodSandboxConfig } from "../gen/cri.ts";
import type { Container, Pod } from "../objects.ts";
import { type SandboxDeps, prepareSandbox } from "./run-sandbox.ts";
import type { Step } from "./step.ts";

/** A fact about the target that a step depends on. Facts for the sandbox are fetched while volumes are mounted, facts for its containers
 *  while the sandbox is created: a remote target runs few commands concurrently, and volumes need most of them. */
export type Prefetch =
  /** The sandbox configuration; fetching it also creates the directory for the containers' logs. */
  | { readonly kind: "sandboxConfig"; readonly attempt: number }
  /** The container's image on the target, if its pull policy accepts a present image. */
  | { readonly kind: "image"; readonly container: Container }
  /** Names of the pod's containers that have a directory for logs. */
  | { readonly kind: "loggedContainers" };

/** Facts fetched ahead. A missing one means that fetching it failed: the step fetches it again and reports the failure. */
export interface PrefetchedFacts {
  readonly sandboxConfig: PodSandboxConfig | undefined;
  /** Image by container name. */
  readonly images: ReadonlyMap<string, Image>;
  readonly loggedContainers: ReadonlySet<string> | undefined;
}

export interface PrefetchDeps extends Pick<SandboxDeps, "configureSandbox" | "fs"> {
  /** The container's image on the target, if its pull policy accepts a present image. */
  readonly findPresentImage: (pod: Pod, container: Container, signal: AbortSignal) => Promise<Image | undefined>;
  /** Names of the pod's containers that have a directory for logs. */
  readonly loggedContainers: (pod: Pod, signal: AbortSignal) => Promise<ReadonlySet<string>>;
}

/** Facts that can be fetched before the step runs. This excludes results of earlier steps (files of an init container), data that must
 *  be fresh at the start (ConfigMaps, Secrets), and calls with side effects (devices, subPath mounts). A restarting container looks up
 *  its image after its back-off. */
export function prefetchesOf(step: Step): readonly Prefetch[] {
  switch (step.kind) {
    case "runSandbox":
    case "useSandbox":
      return [{ kind: "sandboxConfig", attempt: step.attempt }];
    case "startContainer":
      return step.inNewSandbox ? [{ kind: "image", container: step.container }, { kind: "loggedContainers" }] : [];
    default:
      return [];
  }
}

/** Fetches all facts concurrently. Never rejects. */
export async function prefetch(
  deps: PrefetchDeps,
  pod: Pod,
  all: readonly Prefetch[],
  signal: AbortSignal,
): Promise<PrefetchedFacts> {
  const images = new Map<string, Image>();
  let sandboxConfig: PodSandboxConfig | undefined;
  let loggedContainers: ReadonlySet<string> | undefined;
  const fetch = async (need: Prefetch) => {
    if (need.kind === "sandboxConfig") sandboxConfig = await prepareSandbox(deps, pod, need.attempt, signal);
    else if (need.kind === "loggedContainers") loggedContainers = await deps.loggedContainers(pod, signal);
    else {
      const image = await deps.findPresentImage(pod, need.container, signal);
      if (image) images.set(need.container.name, image);
    }
  };
  const isFirst = (need: Prefetch, at: number) =>
    need.kind === "image" || all.findIndex((each) => each.kind === need.kind) === at;
  await Promise.allSettled(all.filter(isFirst).map(fetch));
  return { sandboxConfig, images, loggedContainers };
}
