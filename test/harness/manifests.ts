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
