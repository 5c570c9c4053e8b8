import { ignoreNotFound } from "../../lib/errors.ts";
import type { ConfigMap, Pod, Secret } from "../../objects.ts";
import { volumeDirectory } from "../paths.ts";
import { type KeyItem, type KeySelection, configMapContent, secretContent } from "../content.ts";
import { writeContent } from "../write-content.ts";
import type { VolumeDeps, VolumePlugin } from "./plugin.ts";

const defaultMode = 0o644;

/** A ConfigMap as files on disk.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#configmap */
export const configMap: VolumePlugin = {
  refreshes: true,
  async setUp(deps, pod, volume, signal) {
    const source = volume.configMap ?? {};
    const selection = selectionOf(source, source.defaultMode);
    const content = configMapContent(await readConfigMap(deps, pod, source, signal), selection);
    const { uid } = pod.metadata;
    const path = volumeDirectory(deps.rootDir, uid, "configmap", volume.name);
    await writeContent(deps, { pod, volumeName: volume.name, path, inMemory: false }, content, signal);
    return { hostPath: path, readOnly: true };
  },
};

/** A Secret as files in memory.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#secret */
export const secret: VolumePlugin = {
  refreshes: true,
  async setUp(deps, pod, volume, signal) {
    const source = volume.secret ?? {};
    const reference = { name: source.secretName, optional: source.optional };
    const content = secretContent(
      await readSecret(deps, pod, reference, signal),
      selectionOf(source, source.defaultMode),
    );
    const { uid } = pod.metadata;
    const path = volumeDirectory(deps.rootDir, uid, "secret", volume.name);
    await writeContent(deps, { pod, volumeName: volume.name, path, inMemory: true }, content, signal);
    return { hostPath: path, readOnly: true };
  },
};

interface Reference {
  readonly name?: string | undefined;
  readonly optional?: boolean | undefined;
}

/** Modes and selected keys of a source. */
export function selectionOf(
  source: { readonly items?: readonly KeyItem[]; readonly optional?: boolean },
  mode: number | undefined,
): KeySelection {
  return { items: source.items, optional: source.optional === true, defaultMode: mode ?? defaultMode };
}

/** Reads a ConfigMap; undefined if an optional one is missing. */
export function readConfigMap(
  { objects }: VolumeDeps,
  pod: Pod,
  { name = "", optional }: Reference,
  signal: AbortSignal,
): Promise<ConfigMap | undefined> {
  return ifOptional(objects.configMap(pod.metadata.namespace, name, signal), optional);
}

/** Reads a Secret; undefined if an optional one is missing. */
export function readSecret(
  { objects }: VolumeDeps,
  pod: Pod,
  { name = "", optional }: Reference,
  signal: AbortSignal,
): Promise<Secret | undefined> {
  return ifOptional(objects.secret(pod.metadata.namespace, name, signal), optional);
}

function ifOptional<T>(read: Promise<T>, optional: boolean | undefined): Promise<T | undefined> {
  return optional ? ignoreNotFound(read) : read;
}
