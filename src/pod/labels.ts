// Labels and annotations by which kubelets find their own again: exact, so that one agent can take over from another.

export const podNameLabel = "io.kubernetes.pod.name";
export const podNamespaceLabel = "io.kubernetes.pod.namespace";
export const podUidLabel = "io.kubernetes.pod.uid";
export const containerNameLabel = "io.kubernetes.container.name";

export const containerHashAnnotation = "io.kubernetes.container.hash";
export const containerRestartCountAnnotation = "io.kubernetes.container.restartCount";
export const terminationMessagePathAnnotation = "io.kubernetes.container.terminationMessagePath";
export const terminationMessagePolicyAnnotation = "io.kubernetes.container.terminationMessagePolicy";
export const preStopHandlerAnnotation = "io.kubernetes.container.preStopHandler";
export const containerPortsAnnotation = "io.kubernetes.container.ports";
export const podDeletionGraceAnnotation = "io.kubernetes.pod.deletionGracePeriod";
export const podTerminationGraceAnnotation = "io.kubernetes.pod.terminationGracePeriod";

/** Which source a pod came from: file, http or api. Stamped locally. */
export const configSourceAnnotation = "kubernetes.io/config.source";
/** When the pod was first seen, RFC 3339. Stamped locally. */
export const configSeenAnnotation = "kubernetes.io/config.seen";
/** On a mirror pod: the hash of the static pod that it shows. */
export const configMirrorAnnotation = "kubernetes.io/config.mirror";
/** On a static pod: its UID, which tells one version of its manifest from another. */
export const configHashAnnotation = "kubernetes.io/config.hash";

/** Tells a node's pods from another's in a shared runtime. */
export const nodeLabel = "graftlet.dev/node";
/** On a container: the resources that it was made with, its own and its pod's, as JSON. */
export const resourcesAnnotation = "graftlet.dev/resources";
