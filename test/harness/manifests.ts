import type { Volume, VolumeMount } from "../../src/objects.ts";

/** A volume mounted at its name. */
export function mount(name: string, more: Partial<VolumeMount> = {}): VolumeMount {
  return { name, mountPath: `/${name}`, ...more };
}

/** Each volume mounted at its name. */
export function mounts(volumes: readonly Volume[]): VolumeMount[] {
  return volumes.map(({ name }) => mount(name));
}

export function configMap(name: string, data: Readonly<Record<string, string>>, more: object = {}): object {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name }, data, ...more };
}

export function secret(name: string, stringData: Readonly<Record<string, string>>): object {
  return { apiVersion: "v1", kind: "Secret", metadata: { name }, stringData };
}

/** Lets nodes ask for tokens of an audience that no pod mounts, as for a credential provider plugin.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/ */
export function mayAsk(audience: string): readonly object[] {
  const group = "rbac.authorization.k8s.io";
  const version = `${group}/v1`;
  const name = "request-audience";
  const rules = [{ apiGroups: [""], resources: [audience], verbs: ["request-serviceaccounts-token-audience"] }];
  const subjects = [{ apiGroup: group, kind: "Group", name: "system:nodes" }];
  const roleRef = { apiGroup: group, kind: "ClusterRole", name };
  return [
    { apiVersion: version, kind: "ClusterRole", metadata: { name }, rules },
    { apiVersion: version, kind: "ClusterRoleBinding", metadata: { name }, subjects, roleRef },
  ];
}
