import { createFieldChecker } from "../admission/field-checker.ts";
import { CodedError } from "../lib/errors.ts";
import { recordOf } from "../lib/record.ts";
import type { Pod, PodSpec } from "../objects.ts";
import { type DaemonSets, decideDaemonSetPod } from "../pod/daemon-sets.ts";
import { placeholderReason } from "../pod/placeholder.ts";
import { type Target, hasOwnNetwork, isTargetFeature } from "../seams/provider.ts";
import { withDefaults } from "../sources/pod-defaults.ts";
import { type Finding, type CheckResult, examine, failure, ok, warning } from "./findings.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The pod of a manifest: itself, or the pod template of a Deployment, a Job or another workload.
 *  @throws CodedError invalid_argument, a sentence, for an object without a pod. */
export function podOf(manifest: Fields): Pod {
  const { kind } = manifest;
  const name = recordOf(manifest["metadata"])?.["name"];
  const spec = specIn(manifest);
  const containers = spec?.["containers"];
  if (!spec || !Array.isArray(containers) || containers.length === 0 || !containers.every(recordOf))
    throw new CodedError(
      "invalid_argument",
      `the file contains ${typeof kind === "string" ? `a ${kind}` : "an object"} without a pod's containers: use a Pod, or a workload with a template`,
    );
  return {
    metadata: {
      name: typeof name === "string" ? name : "pod",
      namespace: "default",
      uid: "",
      ...(kind === "DaemonSet" && ofDaemonSet(manifest)),
    },
    spec: withDefaults(spec as unknown as PodSpec),
  };
}

/** Metadata that a pod gets from its DaemonSet. */
function ofDaemonSet(manifest: Fields): Pick<Pod["metadata"], "annotations" | "ownerReferences"> {
  const template = recordOf(recordOf(manifest["spec"])?.["template"]);
  const annotations = recordOf(recordOf(template?.["metadata"])?.["annotations"]) ?? {};
  return {
    annotations: Object.fromEntries(Object.entries(annotations).map(([key, value]) => [key, String(value)])),
    ownerReferences: [{ apiVersion: "apps/v1", kind: "DaemonSet", name: "", uid: "", controller: true }],
  };
}

function specIn(manifest: Fields): Fields | undefined {
  const spec = recordOf(manifest["spec"]);
  const job = recordOf(recordOf(spec?.["jobTemplate"])?.["spec"]);
  const template = recordOf((job ?? spec)?.["template"]);
  return template ? recordOf(template["spec"]) : spec;
}

/** Settings of a node that affect a pod. */
export interface PodNodeSettings {
  /** Undefined if the node's choice is unknown. */
  readonly daemonSets: DaemonSets | undefined;
  readonly rootDir: string;
  readonly cpuCfsQuota: boolean;
}

/** Reports fields that a node does not support, and limitations for the pod there; for a DaemonSet's pod also whether it would run.
 *  Reads from the target, and changes nothing. */
export async function examinePod(
  pod: Pod,
  target: Target,
  place: PodNodeSettings,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const rights = await target.missingPrivileges?.(signal);
  const served = createFieldChecker(
    async (feature, until) =>
      isTargetFeature(feature) ? rights?.unsupported[feature] : target.runtime.unsupportedReason?.(feature, until),
    place,
  );
  const look = async (until: AbortSignal): Promise<readonly CheckResult[]> => {
    const held = await served.unsupportedFields(pod, until);
    const found = [
      ...daemonSetFindings(pod, target, place),
      ...held.map(({ field, why }) => failure(`it would be held because of ${field}: ${why}`, "UnsupportedField")),
      ...networkFindings(pod, target),
    ];
    return found.length > 0 ? found : [ok("all of its fields are supported")];
  };
  return examine([{ name: `pod ${pod.metadata.name}`, look }], signal);
}

function daemonSetFindings(
  pod: Pod,
  { network }: Target,
  { daemonSets, rootDir }: PodNodeSettings,
): readonly CheckResult[] {
  const setting = daemonSets ?? (hasOwnNetwork(network) ? "none" : "all");
  if (decideDaemonSetPod({ pod, status: undefined, existsInRuntime: false, setting, rootDir }).kind === "pod")
    return [];
  const ofItself = daemonSets ? "" : ", the default of a new node with a separate pod network";
  const remedy =
    setting === "none" ? "set daemonSets: selected or all" : 'annotate its template with graftlet.dev/run: "true"';
  return [
    warning(
      `it would be a placeholder that does not run (daemonSets: ${setting}${ofItself}): ${remedy}`,
      placeholderReason,
    ),
  ];
}

function networkFindings({ spec }: Pod, { network }: Target): readonly CheckResult[] {
  const usesCluster = spec.dnsPolicy === "ClusterFirst" || spec.dnsPolicy === "ClusterFirstWithHostNet";
  if (network?.isolated && usesCluster)
    return [
      warning(
        "it would use the machine's name servers and could not reach Services: network: tunneled provides both",
        "PodNetworkIsolated",
      ),
    ];
  if (network?.tunneled && spec.hostNetwork)
    return [warning("with hostNetwork it could not reach Services or resolve their names", "PodNetworkIsolated")];
  return [];
}
