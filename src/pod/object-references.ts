import type { EnvVar, Pod, Volume, Container } from "../objects.ts";
import { allContainers } from "./containers.ts";

/** Names in the pod's own namespace, each once. The Secrets and ConfigMaps that a pod references in env, envFrom, volumes (configMap,
 *  secret, projected, csi, iscsi) and imagePullSecrets. Pure. The Node authorizer lets a node read exactly these.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/node/ */
export function referencedObjects(pod: Pod) {
  const named: readonly Named[] = [
    ...(pod.spec.imagePullSecrets ?? []).map(({ name }) => ({ secret: name })),
    ...ofContainers(pod),
    ...ofVolumes(pod),
  ];
  return {
    secrets: once(named.map(({ secret }) => secret)),
    configMaps: once(named.map(({ configMap }) => configMap)),
  };
}

/** Names in one part of a spec. */
interface Named {
  readonly secret?: string | undefined;
  readonly configMap?: string | undefined;
}

function ofContainers(pod: Pod): Named[] {
  return allContainers(pod).flatMap(({ container }) => [
    ...(container.envFrom ?? []).map((source) => ({
      secret: source.secretRef?.name,
      configMap: source.configMapRef?.name,
    })),
    ...((container.env ?? []) as readonly EnvVar[]).map(({ valueFrom }) => ({
      secret: valueFrom?.secretKeyRef?.name,
      configMap: valueFrom?.configMapKeyRef?.name,
    })),
  ]);
}

function ofVolumes(pod: Pod): Named[] {
  return ((pod.spec.volumes ?? []) as readonly Volume[]).flatMap(({ secret, configMap, projected, csi, iscsi }) => [
    { secret: secret?.secretName, configMap: configMap?.name },
    { secret: csi?.nodePublishSecretRef?.name },
    { secret: iscsi?.secretRef?.name },
    ...(projected?.sources ?? []).map((source) => ({ secret: source.secret?.name, configMap: source.configMap?.name })),
  ]);
}

function once(names: readonly (string | undefined)[]): string[] {
  return [...new Set(names.filter((name): name is string => name !== undefined && name !== ""))];
}

/** A volume with an `image` source. */
type ImageVolume = Volume & Required<Pick<Volume, "image">>;

/** The image volumes that a container mounts, each once, in the order of its mounts. Pure. */
export function imageVolumes({ spec }: Pod, { volumeMounts = [] }: Container): readonly ImageVolume[] {
  const names = new Set(volumeMounts.map(({ name }) => name));
  return [...names].flatMap((name) => {
    const volume = spec.volumes?.find((one) => one.name === name);
    return volume && isImage(volume) ? [volume] : [];
  });
}

function isImage(volume: Volume): volume is ImageVolume {
  return volume.image !== undefined;
}
