import { type GateSpec, gateGroups } from "./known-gates.ts";
import { nearest } from "./names.ts";
import { refuse } from "./refusal.ts";

export type GateSettings = Readonly<Record<string, boolean>>;

/** Gates that graftlet implements: the feature is available only with the gate. */
const implemented = new Set([
  "KubeletCrashLoopBackOffMax",
  "KubeletEnsureSecretPulledImages",
  "KubeletServiceAccountTokenForCredentialProviders",
  "CustomCPUCFSQuotaPeriod",
  "RotateKubeletServerCertificate",
  "PodLogsQuerySplitStreams",
  "PodsAPI",
  "ComponentFlagz",
  "ComponentStatusz",
  "ResourceHealthStatus",
  "ResourceHealthStatusMessage",
  "ContainerStopSignals",
  "ImageVolumeWithDigest",
  "CSIVolumeHealth",
  "SELinuxMount",
  "ClusterTrustBundleProjection",
  "PodCertificateRequest",
  "CPUManagerPolicyAlphaOptions",
  "CPUManagerPolicyBetaOptions",
  "DisableCPUQuotaWithExclusiveCPUs",
  "KubeletPodResourcesListUseActivePods",
  "PodLevelResourceManagers",
  "MemoryQoS",
  "GracefulNodeShutdown",
  "GracefulNodeShutdownBasedOnPodPriority",
]);

/** Gates that set all gates of one stage, by stage. */
const stageGates: Readonly<Record<string, GateSpec["stage"]>> = { AllAlpha: "alpha", AllBeta: "beta" };

function specOf(name: string): GateSpec | undefined {
  return gateGroups.find((group) => group.names.split(/\s+/).includes(name));
}

function knownNames(): string[] {
  return [
    ...Object.keys(stageGates),
    ...gateGroups.flatMap((group) => group.names.split(/\s+/).filter((name) => name !== "")),
  ];
}

/** State of a gate: the explicit setting, else that of its stage's gate, else the default; false for an unknown gate. */
export function gateEnabled(settings: GateSettings, name: string): boolean {
  const spec = specOf(name);
  const set = settings[name];
  if (!spec || set !== undefined) return set ?? false;
  const stageGate = Object.keys(stageGates).find((gate) => stageGates[gate] === spec.stage);
  const byStage = stageGate === undefined ? undefined : settings[stageGate];
  return spec.locked || !byStage ? spec.byDefault : true;
}

/** Refuses unknown gates, and locked gates that are not set to their default. @throws CodedError invalid_argument */
export function checkGates(settings: GateSettings): void {
  for (const [name, value] of Object.entries(settings)) {
    if (name in stageGates) continue;
    const spec = specOf(name);
    const field = `featureGates.${name} (--feature-gates)`;
    if (!spec) {
      const near = nearest(name, knownNames());
      throw refuse(
        field,
        value,
        `Kubernetes 1.36 has no such feature gate; ${near ? `did you mean ${near}?` : "leave it out"}`,
      );
    }
    if (spec.locked && value !== spec.byDefault) {
      throw refuse(field, value, `the gate is locked to ${spec.byDefault} at 1.36; leave it out`);
    }
  }
}

/** A gate that graftlet implements, with its state. */
export interface ImplementedGate {
  readonly name: string;
  readonly stage: GateSpec["stage"];
  readonly enabled: boolean;
}

export function implementedGates(settings: GateSettings): readonly ImplementedGate[] {
  return [...implemented].flatMap((name) => {
    const spec = specOf(name);
    return spec ? [{ name, stage: spec.stage, enabled: gateEnabled(settings, name) }] : [];
  });
}

/** One line for each gate that differs from its default, and that the kubelet implements but graftlet does not. */
export function gateWarnings(settings: GateSettings): string[] {
  const lines: string[] = [];
  for (const [name, value] of Object.entries(settings)) {
    const stage = stageGates[name];
    if (stage && value)
      lines.push(`feature gate ${name}=true is not supported yet: graftlet keeps its behaviour for ${stage} features`);
    const spec = specOf(name);
    if (!spec || !spec.kubelet || implemented.has(name) || value === spec.byDefault) continue;
    lines.push(`feature gate ${name}=${value} is not supported yet: it has no effect in graftlet`);
  }
  return lines;
}
