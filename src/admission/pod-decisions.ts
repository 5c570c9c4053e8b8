import type * as k8s from "@kubernetes/client-node";
import { container, ephemeral, resources } from "./container-decisions.ts";
import { type WireDecisions, checkEach, checkFields } from "./field-decisions.ts";
import { unsupportedInVolume } from "./volume-decisions.ts";

export const podSecurity: WireDecisions<k8s.V1PodSecurityContext> = {
  appArmorProfile: "supported",
  fsGroup: "supported",
  // Only affects how fsGroup is applied.
  fsGroupChangePolicy: "supported",
  runAsGroup: "supported",
  runAsNonRoot: "supported",
  runAsUser: "supported",
  // Only affects volumes of unsupported types.
  seLinuxChangePolicy: "supported",
  seLinuxOptions: "supported",
  seccompProfile: "supported",
  supplementalGroups: "supported",
  supplementalGroupsPolicy: "supported",
  sysctls: "supported",
  // Ignored on Linux.
  windowsOptions: "supported",
};

/** Fields handled by the scheduler, admission or the API server count as supported. */
export const podSpec: WireDecisions<k8s.V1PodSpec> = {
  activeDeadlineSeconds: "supported",
  affinity: "supported",
  automountServiceAccountToken: "supported",
  containers: checkEach(checkFields(container)),
  dnsConfig: "supported",
  dnsPolicy: "supported",
  enableServiceLinks: "supported",
  ephemeralContainers: checkEach(checkFields(ephemeral)),
  hostAliases: "supported",
  hostIPC: "supported",
  hostNetwork: "supported",
  hostPID: "supported",
  hostUsers: "supported",
  hostname: "supported",
  hostnameOverride: "supported",
  imagePullSecrets: "supported",
  initContainers: checkEach(checkFields(container)),
  nodeName: "supported",
  nodeSelector: "supported",
  os: "supported",
  overhead: "supported",
  preemptionPolicy: "supported",
  priority: "supported",
  priorityClassName: "supported",
  readinessGates: "supported",
  resourceClaims: "supported",
  resources: checkFields(resources),
  restartPolicy: "supported",
  runtimeClassName: "supported",
  schedulerName: "supported",
  schedulingGates: "supported",
  schedulingGroup: "supported",
  securityContext: checkFields(podSecurity),
  serviceAccount: "supported",
  serviceAccountName: "supported",
  setHostnameAsFQDN: "supported",
  shareProcessNamespace: "supported",
  subdomain: "supported",
  terminationGracePeriodSeconds: "supported",
  tolerations: "supported",
  topologySpreadConstraints: "supported",
  volumes: checkEach(unsupportedInVolume),
};
