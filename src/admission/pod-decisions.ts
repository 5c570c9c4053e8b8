import type * as k8s from "@kubernetes/client-node";
import type { Wire } from "../objects.ts";
import { container, ephemeral, resources } from "./container-decisions.ts";
import { type Decisions, eachOf, fieldsOf, held, heldWhen } from "./decisions.ts";
import { unservedInVolume } from "./volume-decisions.ts";

type Fields<Type> = Decisions<Wire<Type>>;

export const podSecurity: Fields<k8s.V1PodSecurityContext> = {
  appArmorProfile: "served",
  fsGroup: "served",
  // Only affects how fsGroup is applied.
  fsGroupChangePolicy: "served",
  runAsGroup: "served",
  runAsNonRoot: "served",
  runAsUser: "served",
  // Only affects volumes of unsupported types.
  seLinuxChangePolicy: "served",
  seLinuxOptions: "served",
  seccompProfile: "served",
  supplementalGroups: "served",
  supplementalGroupsPolicy: "served",
  sysctls: "served",
  // Ignored on Linux.
  windowsOptions: "served",
};

/** Fields handled by the scheduler, admission or the API server count as supported. */
export const podSpec: Fields<k8s.V1PodSpec> = {
  activeDeadlineSeconds: "served",
  affinity: "served",
  automountServiceAccountToken: "served",
  containers: eachOf(fieldsOf(container)),
  dnsConfig: "served",
  dnsPolicy: "served",
  enableServiceLinks: "served",
  ephemeralContainers: eachOf(fieldsOf(ephemeral)),
  hostAliases: "served",
  hostIPC: "served",
  hostNetwork: "served",
  hostPID: "served",
  hostUsers: heldWhen((host: boolean) => !host, "user namespaces are not supported yet"),
  hostname: "served",
  hostnameOverride: "served",
  imagePullSecrets: "served",
  initContainers: eachOf(fieldsOf(container)),
  nodeName: "served",
  nodeSelector: "served",
  os: "served",
  overhead: "served",
  preemptionPolicy: "served",
  priority: "served",
  priorityClassName: "served",
  readinessGates: "served",
  resourceClaims: held("dynamic resource allocation is not supported yet"),
  resources: fieldsOf(resources),
  restartPolicy: "served",
  runtimeClassName: "served",
  schedulerName: "served",
  schedulingGates: "served",
  schedulingGroup: "served",
  securityContext: fieldsOf(podSecurity),
  serviceAccount: "served",
  serviceAccountName: "served",
  setHostnameAsFQDN: "served",
  shareProcessNamespace: "served",
  subdomain: "served",
  terminationGracePeriodSeconds: "served",
  tolerations: "served",
  topologySpreadConstraints: "served",
  volumes: eachOf(unservedInVolume),
};
