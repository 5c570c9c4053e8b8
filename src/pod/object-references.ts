import type { EnvVar, Pod, Volume } from "../objects.ts";
import { allContainers } from "./containers.ts";

/** Names in the pod's own namespace, each once. */
export interface ObjectReferences {
  readonly secrets: readonly string[];
  readonly configMaps: readonly string[];
}

/** The secrets and config maps that a pod names: in env, envFrom, volumes (configMap, secret, projected) and
 *  imagePullSecrets. Pure. The Node authorizer lets a node read exactly those.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/node/ */
export function referencedObjects(pod: Pod): ObjectReferences {
  const secrets = new Set<string>();
  const configMaps = new Set<string>();
  const take = (into: Set<string>, name: string | undefined) => {
    if (name) into.add(name);
  };
  for (const { name } of pod.spec.imagePullSecrets ?? []) take(secrets, name);
  for (const { container } of allContainers(pod)) {
    for (const source of container.envFrom ?? []) {
      take(secrets, source.secretRef?.name);
      take(configMaps, source.configMapRef?.name);
    }
    for (const { valueFrom } of (container.env ?? []) as readonly EnvVar[]) {
      take(secrets, valueFrom?.secretKeyRef?.name);
      take(configMaps, valueFrom?.configMapKeyRef?.name);
    }
  }
  for (const volume of (pod.spec.volumes ?? []) as readonly Volume[]) {
    take(secrets, volume.secret?.secretName);
    take(configMaps, volume.configMap?.name);
    for (const source of volume.projected?.sources ?? []) {
      take(secrets, source.secret?.name);
      take(configMaps, source.configMap?.name);
    }
  }
  return { secrets: [...secrets], configMaps: [...configMaps] };
}
