import type { V1Container, V1PodSecurityContext, V1PodSpec } from "@kubernetes/client-node";

const volumeTypes = new Set([
  "configMap",
  "csi",
  "downwardAPI",
  "emptyDir",
  "ephemeral",
  "persistentVolumeClaim",
  "projected",
  "secret",
]);

/** What of a pod's spec the restricted profile of Pod Security forbids, field by field.
 *  @see https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted */
export function restrictedBreaches(pod: V1PodSpec): string[] {
  const ofPod = pod.securityContext ?? {};
  const namespaces = { hostNetwork: pod.hostNetwork, hostPID: pod.hostPID, hostIPC: pod.hostIPC };
  const breaches: string[] = Object.entries(namespaces).flatMap(([field, value]) => (value ? [field] : []));
  for (const volume of pod.volumes ?? [])
    for (const type of Object.keys(volume))
      if (type !== "name" && !volumeTypes.has(type)) breaches.push(`volume ${volume.name} is a ${type}`);
  if ((ofPod.sysctls ?? []).length > 0) breaches.push("sysctls");
  for (const container of [...(pod.initContainers ?? []), ...pod.containers])
    breaches.push(...containerBreaches(container, ofPod));
  return breaches;
}

function containerBreaches(container: V1Container, ofPod: V1PodSecurityContext): string[] {
  const own = container.securityContext ?? {};
  const { runAsNonRoot, runAsUser, seccompProfile, appArmorProfile, seLinuxOptions } = Object.assign({}, ofPod, own);
  const isProfile = (type: string | undefined) => type === "RuntimeDefault" || type === "Localhost";
  const wrong: Readonly<Record<string, boolean>> = {
    privileged: own.privileged === true,
    allowPrivilegeEscalation: own.allowPrivilegeEscalation !== false,
    "capabilities.drop": !(own.capabilities?.drop ?? []).includes("ALL"),
    "capabilities.add": (own.capabilities?.add ?? []).some((name) => name !== "NET_BIND_SERVICE"),
    procMount: own.procMount !== undefined && own.procMount !== "Default",
    hostPort: (container.ports ?? []).some(({ hostPort }) => hostPort !== undefined),
    runAsNonRoot: runAsNonRoot !== true,
    runAsUser: runAsUser === 0,
    seccompProfile: !isProfile(seccompProfile?.type),
    appArmorProfile: appArmorProfile !== undefined && !isProfile(appArmorProfile.type),
    seLinuxOptions: seLinuxOptions !== undefined,
  };
  return Object.keys(wrong)
    .filter((field) => wrong[field])
    .map((field) => `${container.name}: ${field}`);
}
