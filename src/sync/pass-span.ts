import type { Span, Tracer } from "../lib/tracer.ts";
import type { SyncKind } from "../measures.ts";
import { fullName } from "../pod/reference.ts";
import type { DesiredPod } from "../roles.ts";

/** The kubelet's span names. */
const spanNames: Readonly<Record<SyncKind, string>> = {
  create: "syncPod",
  update: "syncPod",
  sync: "syncPod",
  kill: "syncTerminatingPod",
  terminated: "syncTerminatedPod",
};

/** Runs a sync pass as the root span of a trace, with the kubelet's attributes. A pod that only the runtime knows gets no span.
 *  @throws the error of the pass.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/system-traces/#kubelet-traces */
export function inSpan(
  tracer: Tracer,
  kind: SyncKind,
  pod: DesiredPod | undefined,
  work: (span?: Span) => Promise<void>,
): Promise<void> {
  if (!pod || !tracer.isOn) return work();
  const { uid, name, namespace } = pod.metadata;
  const spanName = spanNames[kind];
  const attributes = {
    "k8s.pod.uid": uid,
    "k8s.pod": fullName(pod),
    "k8s.pod.name": name,
    "k8s.namespace.name": namespace,
    ...(spanName === "syncPod" && { "k8s.pod.update_type": kind }),
  };
  return tracer.span(spanName, { attributes, parent: "none" }, work);
}
