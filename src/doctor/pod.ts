import { createServed } from "../admission/served.ts";
import { CodedError } from "../lib/errors.ts";
import type { Pod, PodSpec } from "../objects.ts";
import { type Target, isTargetFeature } from "../seams/provider.ts";
import { withDefaults } from "../sources/pod-defaults.ts";
import { type Finding, type Verdict, examine, failure, ok, warning } from "./findings.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The pod of a manifest: itself, or what a Deployment, a Job or another workload makes.
 *  @throws CodedError invalid_argument, a sentence, for an object that makes none. */
export function podOf(manifest: Fields): Pod {
  const { kind } = manifest;
  const name = fieldsIn(manifest["metadata"])?.["name"];
  const spec = specIn(manifest);
  const containers = spec?.["containers"];
  if (!spec || !Array.isArray(containers) || containers.length === 0 || !containers.every(fieldsIn))
    throw new CodedError(
      "invalid_argument",
      `the file holds ${typeof kind === "string" ? `a ${kind}` : "an object"} without a pod's containers: give a Pod, or a workload with a template`,
    );
  return {
    metadata: { name: typeof name === "string" ? name : "pod", namespace: "default", uid: "" },
    spec: withDefaults(spec as unknown as PodSpec),
  };
}

function specIn(manifest: Fields): Fields | undefined {
  const spec = fieldsIn(manifest["spec"]);
  const job = fieldsIn(fieldsIn(spec?.["jobTemplate"])?.["spec"]);
  const template = fieldsIn((job ?? spec)?.["template"]);
  return template ? fieldsIn(template["spec"]) : spec;
}

function fieldsIn(value: unknown): Fields | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : undefined;
}

/** Fields for which a node would hold a pod, and things that it would lack there. It asks the target, and changes nothing. */
export async function examinePod(pod: Pod, target: Target, signal: AbortSignal): Promise<readonly Finding[]> {
  const rights = await target.missingRights?.(signal);
  const served = createServed(async (feature, until) =>
    isTargetFeature(feature) ? rights?.lacks[feature] : target.runtime.lacks?.(feature, until),
  );
  const look = async (until: AbortSignal): Promise<readonly Verdict[]> => {
    const held = await served.unserved(pod, until);
    const found = [
      ...held.map(({ field, why }) => failure(`it would be held for ${field}: ${why}`, "FieldNotServed")),
      ...degraded(pod, target),
    ];
    return found.length > 0 ? found : [ok("it would be served whole")];
  };
  return examine([{ name: `pod ${pod.metadata.name}`, look }], signal);
}

function degraded({ spec }: Pod, { network }: Target): readonly Verdict[] {
  const usesCluster = spec.dnsPolicy === "ClusterFirst" || spec.dnsPolicy === "ClusterFirstWithHostNet";
  if (network?.isolated && usesCluster)
    return [
      warning(
        "it would have the machine's name servers, and no way to Services: network: tunneled gives it both",
        "PodNetworkIsolated",
      ),
    ];
  if (network?.tunneled && spec.hostNetwork)
    return [warning("with hostNetwork it would have no way to Services and their names", "PodNetworkIsolated")];
  return [];
}
