import type { ContainerMetadata, PodSandboxMetadata } from "../../../src/gen/cri.ts";

/** Labels with which cri-dockerd tells its containers apart; its tools look for them. */
export const typeLabel = "io.kubernetes.docker.type";
export const sandboxType = "podsandbox";
export const containerType = "container";
export const sandboxIdLabel = "io.kubernetes.sandbox.id";
export const logPathLabel = "io.kubernetes.container.logpath";
/** The image as the pod names it: containers are created by its ID or digest. */
export const imageLabel = "graftlet.dev/image";
/** The runtime handler that a sandbox was asked for. */
export const runtimeHandlerLabel = "graftlet.dev/runtime-handler";
/** CRI annotations are kept as labels with this before their names. */
export const annotationPrefix = "annotation.";

/** In the place of a container's name. */
export const sandboxPart = "POD";

/** `k8s_POD_<pod>_<namespace>_<uid>_<attempt>`, as cri-dockerd names sandboxes. */
export function sandboxName({ name, namespace, uid, attempt }: PodSandboxMetadata): string {
  return ["k8s", sandboxPart, name, namespace, uid, String(attempt)].join("_");
}

/** `k8s_<container>_<pod>_<namespace>_<uid>_<attempt>`, as cri-dockerd names containers. */
export function containerName(container: ContainerMetadata, pod: PodSandboxMetadata): string {
  return ["k8s", container.name, pod.name, pod.namespace, pod.uid, String(container.attempt)].join("_");
}

/** What a sandbox's name says; undefined for a name that is none. A name may end in `_<hexadecimal digits>`, given where
 *  somebody else had it. */
export function parseSandboxName(text: string): PodSandboxMetadata | undefined {
  const parts = partsOf(text);
  if (!parts || parts.container !== sandboxPart) return undefined;
  return { name: parts.pod, namespace: parts.namespace, uid: parts.uid, attempt: parts.attempt };
}

/** The container's own name and attempt in the name of a container; undefined for a name that is none. */
export function parseContainerName(text: string): ContainerMetadata | undefined {
  const parts = partsOf(text);
  if (!parts || parts.container === sandboxPart) return undefined;
  return { name: parts.container, attempt: parts.attempt };
}

/** Kubernetes names hold no underscore. The Engine API writes names with a slash before them. */
function partsOf(text: string) {
  const [k8s, container, pod, namespace, uid, attempt, suffix, ...more] = text.replace(/^\//, "").split("_");
  if (k8s !== "k8s" || !container || !pod || !namespace || !uid || !/^\d+$/.test(attempt ?? "")) return undefined;
  if (more.length > 0 || (suffix !== undefined && !/^[0-9a-f]+$/.test(suffix))) return undefined;
  return { container, pod, namespace, uid, attempt: Number(attempt) };
}
