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
  /** Whether the container has logs; then its files are created. */
  | { readonly kind: "files"; readonly container: Container; readonly attempt: number };

/** Facts fetched ahead. A missing one means that fetching it failed: the step fetches it again and reports the failure. */
export type PrefetchedFacts = Awaited<ReturnType<typeof prefetch>>;

export interface PrefetchDeps extends Pick<SandboxDeps, "configureSandbox" | "fs"> {
  /** The container's image on the target, if its pull policy accepts a present image. */
  readonly findPresentImage: (pod: Pod, container: Container, signal: AbortSignal) => Promise<Image | undefined>;
  /** Names of the pod's containers that have a directory for logs. */
  readonly loggedContainers: (pod: Pod, signal: AbortSignal) => Promise<ReadonlySet<string>>;
  /** Creates the files of a container in a new sandbox. @param attempt of the sandbox; if it fails, the next one gets the same files.
   *  @returns the name of its termination message file. */
  readonly createContainerFiles: (
    pod: Pod,
    container: Container,
    attempt: number,
    signal: AbortSignal,
  ) => Promise<string>;
}

/** Facts that can be fetched before the step runs. This excludes results of earlier steps (files of an init container), data that must
 *  be fresh at the start (ConfigMaps, Secrets), and calls with side effects (devices, subPath mounts). A restarting container looks up
 *  its image after its back-off. */
export function prefetchesOf(steps: readonly Step[]): readonly Prefetch[] {
  const attempt = steps.find((step) => step.kind === "runSandbox")?.attempt ?? 0;
  return steps.flatMap((step): readonly Prefetch[] => {
    if (step.kind === "runSandbox" || step.kind === "useSandbox")
      return [{ kind: "sandboxConfig", attempt: step.attempt }];
    if (step.kind !== "startContainer" || !step.inNewSandbox) return [];
    const { container } = step;
    return [
      { kind: "image", container },
      { kind: "files", container, attempt },
    ];
  });
}

/** Fetches all facts concurrently. Never rejects. */
export async function prefetch(deps: PrefetchDeps, pod: Pod, all: readonly Prefetch[], signal: AbortSignal) {
  /** Image by container name. */
  const images = new Map<string, Image>();
  /** Names of the termination message files, by container name. */
  const instances = new Map<string, string>();
  let sandboxConfig: PodSandboxConfig | undefined;
  let loggedContainers: ReadonlySet<string> | undefined;
  // The files include the directories for logs, by which the containers with logs are known.
  const listing = all.some(({ kind }) => kind === "files")
    ? deps.loggedContainers(pod, signal).then((names) => void (loggedContainers = names))
    : Promise.resolve();
  const fetch = async (need: Prefetch) => {
    if (need.kind === "sandboxConfig") sandboxConfig = await prepareSandbox(deps, pod, need.attempt, signal);
    else if (need.kind === "files") {
      await listing;
      instances.set(need.container.name, await deps.createContainerFiles(pod, need.container, need.attempt, signal));
    } else {
      const image = await deps.findPresentImage(pod, need.container, signal);
      if (image) images.set(need.container.name, image);
    }
  };
  await Promise.allSettled(all.map(fetch));
  return { sandboxConfig, images, loggedContainers, instances };
}
