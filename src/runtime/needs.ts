import type { Image, PodSandboxConfig } from "../gen/cri.ts";
import type { Container, Pod } from "../objects.ts";
import { type SandboxDeps, prepareSandbox } from "./run-sandbox.ts";
import type { Step } from "./step.ts";

/** Something that a step has to know of the target. What the sandbox needs is asked for while volumes are mounted; what its
 *  containers need, while it is made: a far target answers few questions at a time, and volumes have the longest way. */
export type Need =
  /** The sandbox's configuration; the directory for its containers' logs is made with it. */
  | { readonly of: "sandboxConfig"; readonly attempt: number }
  /** The image, where the container is content with what is there. */
  | { readonly of: "image"; readonly container: Container }
  /** Names of the pod's containers that have a directory for logs. */
  | { readonly of: "loggedContainers" };

/** Answers to needs. One that is missing could not be had: the step asks again, and its failure is told. */
export interface Answers {
  readonly sandboxConfig: PodSandboxConfig | undefined;
  /** By container name. */
  readonly images: ReadonlyMap<string, Image>;
  readonly loggedContainers: ReadonlySet<string> | undefined;
}

export interface NeedsDeps extends Pick<SandboxDeps, "configureSandbox" | "fs"> {
  /** The image where the container is content with what is there. */
  readonly lookForImage: (pod: Pod, container: Container, signal: AbortSignal) => Promise<Image | undefined>;
  /** Names of the pod's containers that have a directory for logs. */
  readonly loggedContainers: (pod: Pod, signal: AbortSignal) => Promise<ReadonlySet<string>>;
}

/** What can be asked for before the step is taken. Not so what the steps before it bring about (files of an init container), what
 *  must be fresh at the start (objects), and what leaves a trace (devices, parts of volumes). A container that starts again asks
 *  for its image when its back-off lets it. */
export function needs(step: Step): readonly Need[] {
  switch (step.do) {
    case "runSandbox":
    case "useSandbox":
      return [{ of: "sandboxConfig", attempt: step.attempt }];
    case "startContainer":
      return step.inNewSandbox ? [{ of: "image", container: step.container }, { of: "loggedContainers" }] : [];
    default:
      return [];
  }
}

/** Asks the target for all of this, side by side. Never rejects. */
export async function answerNeeds(
  deps: NeedsDeps,
  pod: Pod,
  all: readonly Need[],
  signal: AbortSignal,
): Promise<Answers> {
  const images = new Map<string, Image>();
  let sandboxConfig: PodSandboxConfig | undefined;
  let loggedContainers: ReadonlySet<string> | undefined;
  const answer = async (need: Need) => {
    if (need.of === "sandboxConfig") sandboxConfig = await prepareSandbox(deps, pod, need.attempt, signal);
    else if (need.of === "loggedContainers") loggedContainers = await deps.loggedContainers(pod, signal);
    else {
      const image = await deps.lookForImage(pod, need.container, signal);
      if (image) images.set(need.container.name, image);
    }
  };
  const isFirst = (need: Need, at: number) =>
    need.of === "image" || all.findIndex((each) => each.of === need.of) === at;
  await Promise.allSettled(all.filter(isFirst).map(answer));
  return { sandboxConfig, images, loggedContainers };
}
