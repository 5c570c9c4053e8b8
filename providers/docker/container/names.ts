import type { ContainerMetadata, PodSandboxMetadata } from "../../../src/gen/cri.ts";

/** cri-dockerd's labels, which its tools look for. */
export const typeLabel = "io.kubernetes.docker.type";
export const sandboxType = "podsandbox";
export const containerType = "container";
export const sandboxIdLabel = "io.kubernetes.sandbox.id";
export const logPathLabel = "io.kubernetes.container.logpath";
/** The image as named in the pod spec; containers are created by ID or digest. */
export const imageLabel = "graftlet.dev/image";
/** The requested runtime handler of a sandbox. */
export const runtimeHandlerLabel = "graftlet.dev/runtime-handler";
/** Prefix of labels that hold CRI annotations. */
export const annotationPrefix = "annotation.";

/** Replaces the container name in a sandbox's name. */
export const sandboxContainerName = "POD";

/** Sandbox name as in cri-dockerd: `k8s_POD_<pod>_<namespace>_<uid>_<attempt>`. */
export function sandboxName({ name, namespace, uid, attempt }: PodSandboxMetadata): string {
  return ["k8s", sandboxContainerName, name, namespace, uid, String(attempt)].join("_");
}

/** Container name as in cri-dockerd: `k8s_<container>_<pod>_<namespace>_<uid>_<attempt>`. */
export function containerName(container: ContainerMetadata, pod: PodSandboxMetadata): string {
  return ["k8s", container.name, pod.name, pod.namespace, pod.uid, String(container.attempt)].join("_");
}

/** Parses a sandbox's name, which may end in `_<hexadecimal digits>` (createNamed); undefined for any other name. */
export function parseSandboxName(text: string): PodSandboxMetadata | undefined {
  const parts = parseName(text);
  if (!parts || parts.container !== sandboxContainerName) return undefined;
  return { name: parts.pod, namespace: parts.namespace, uid: parts.uid, attempt: parts.attempt };
}

/** Parses a container's name into its CRI name and attempt; undefined for any other name. */
export function parseContainerName(text: string): ContainerMetadata | undefined {
  const parts = parseName(text);
  if (!parts || parts.container === sandboxContainerName) return undefined;
  return { name: parts.container, attempt: parts.attempt };
}

/** Kubernetes names contain no underscore. The Engine API prefixes names with a slash. */
function parseName(text: string) {
  const [k8s, container, pod, namespace, uid, attempt, suffix, ...more] = text.replace(/^\//, "").split("_");
  if (k8s !== "k8s" || !container || !pod || !namespace || !uid || !/^\d+$/.test(attempt ?? "")) return undefined;
  if (more.length > 0 || (suffix !== undefined && !/^[0-9a-f]+$/.test(suffix))) return undefined;
  return { container, pod, namespace, uid, attempt: Number(attempt) };
}
