import type { Image, PodSandboxConfig } from "../gen/cri.ts";
import type { Container, Pod } from "../objects.ts";
import type { CreatedFiles } from "./container-files.ts";
import { type SandboxDeps, prepareSandbox } from "./run-sandbox.ts";
import type { Step } from "./step.ts";

/** A fact about the target that a sandbox depends on. Those are fetched while volumes are mounted, each in one round trip. */
type SandboxPrefetch =
  /** The sandbox configuration; fetching it also creates the directory for the containers' logs. */
  | { readonly kind: "sandboxConfig"; readonly attempt: number }
  /** Names of the pod's containers that have logs. */
  | { readonly kind: "loggedContainers" };

/** A fact about the target that a container depends on. Those are fetched while the sandbox is created: a remote target runs few commands
 *  concurrently, and volumes need most of them. */
type ContainerPrefetch =
  /** The container's image on the target, if its pull policy accepts a present image. */
  | { readonly kind: "image"; readonly container: Container }
  /** The container's files, which are created; among them is the directory for its logs, so the containers with logs are listed before. */
  | { readonly kind: "files"; readonly container: Container; readonly attempt: number };

/** Facts fetched ahead. A missing one means that fetching it failed: the step fetches it again and reports the failure. */
export type PrefetchedFacts = Awaited<ReturnType<typeof prefetchContainers>>;

export interface PrefetchDeps extends Pick<SandboxDeps, "configureSandbox" | "createLogDirectory"> {
  /** The container's image on the target, if its pull policy accepts a present image. */
  readonly findPresentImage: (pod: Pod, container: Container, signal: AbortSignal) => Promise<Image | undefined>;
  /** Names of the pod's containers that have a directory for logs. */
  readonly loggedContainers: (pod: Pod, signal: AbortSignal) => Promise<ReadonlySet<string>>;
  /** Creates the files of a container in a new sandbox. @param attempt of the sandbox; if it fails, the next one gets the same files. */
  readonly createContainerFiles: (
    pod: Pod,
    container: Container,
    attempt: number,
    signal: AbortSignal,
  ) => Promise<CreatedFiles>;
}

/** Facts that can be fetched before the step runs. This excludes results of earlier steps (files of an init container), data that must
 *  be fresh at the start (ConfigMaps, Secrets), and calls with side effects (devices, subPath mounts). A restarting container looks up
 *  its image after its back-off. */
export function prefetchesOf(steps: readonly Step[]): {
  readonly sandbox: readonly SandboxPrefetch[];
  readonly containers: readonly ContainerPrefetch[];
} {
  const attempt = steps.find((step) => step.kind === "runSandbox")?.attempt ?? 0;
  const configs = steps.flatMap((step): readonly SandboxPrefetch[] =>
    step.kind === "runSandbox" || step.kind === "useSandbox" ? [{ kind: "sandboxConfig", attempt: step.attempt }] : [],
  );
  const containers = steps.flatMap((step): readonly ContainerPrefetch[] => {
    if (step.kind !== "startContainer" || !step.inNewSandbox) return [];
    const { container } = step;
    return [
      { kind: "image", container },
      { kind: "files", container, attempt },
    ];
  });
  return { sandbox: containers.length > 0 ? [...configs, { kind: "loggedContainers" }] : configs, containers };
}

/** Facts for a new sandbox. A missing one means that fetching it failed. */
export interface SandboxFacts {
  readonly config?: PodSandboxConfig;
  readonly loggedContainers?: ReadonlySet<string>;
}

/** Fetches the facts for a sandbox concurrently. Never rejects. */
export async function prefetchSandbox(
  deps: PrefetchDeps,
  pod: Pod,
  all: readonly SandboxPrefetch[],
  signal: AbortSignal,
): Promise<SandboxFacts> {
  const fetch = async (need: SandboxPrefetch): Promise<SandboxFacts> =>
    need.kind === "sandboxConfig"
      ? { config: await prepareSandbox(deps, pod, need.attempt, signal) }
      : { loggedContainers: await deps.loggedContainers(pod, signal) };
  const fetched = await Promise.allSettled(all.map(fetch));
  return Object.assign({}, ...fetched.map((each) => (each.status === "fulfilled" ? each.value : {}))) as SandboxFacts;
}

/** Fetches the facts for containers concurrently. Never rejects. @param loggedContainers undefined if that could not be read: no files are
 *  created then. */
export async function prefetchContainers(
  deps: PrefetchDeps,
  pod: Pod,
  all: readonly ContainerPrefetch[],
  loggedContainers: ReadonlySet<string> | undefined,
  signal: AbortSignal,
) {
  /** Image by container name. */
  const images = new Map<string, Image>();
  /** Files by container name. */
  const files = new Map<string, CreatedFiles>();
  const fetch = async (need: ContainerPrefetch) => {
    if (need.kind === "image") {
      const image = await deps.findPresentImage(pod, need.container, signal);
      if (image) images.set(need.container.name, image);
    } else if (loggedContainers)
      files.set(need.container.name, await deps.createContainerFiles(pod, need.container, need.attempt, signal));
  };
  await Promise.allSettled(all.map(fetch));
  return { images, loggedContainers, files };
}
