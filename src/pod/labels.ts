// The kubelet's labels and annotations of containers and pods: exact, so that one agent can take over from another.

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

/** The pod's source: file, http or api. Set on the node only. */
export const configSourceAnnotation = "kubernetes.io/config.source";
/** The time when the pod was first seen, RFC 3339. Set on the node only. */
export const configSeenAnnotation = "kubernetes.io/config.seen";
/** Annotation of a mirror pod: the hash of its static pod. */
export const configMirrorAnnotation = "kubernetes.io/config.mirror";
/** Annotation of a static pod: its UID, which changes with its manifest. */
export const configHashAnnotation = "kubernetes.io/config.hash";

/** Identifies a node's pods on a shared runtime. */
export const nodeLabel = "graftlet.dev/node";
/** Annotation of a container: its resources and its pod's at creation, as JSON. */
export const resourcesAnnotation = "graftlet.dev/resources";
