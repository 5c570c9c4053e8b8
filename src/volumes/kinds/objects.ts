import { ignoreNotFound } from "../../lib/errors.ts";
import type { ConfigMap, Pod, Secret } from "../../objects.ts";
import { podSubdirectory, volumeDirectory } from "../paths.ts";
import { type KeyItem, type KeySelection, configMapPayload, secretPayload } from "../payload.ts";
import { place } from "../place.ts";
import { memoryBound, memoryDirectory, tmpfsMode } from "../tmpfs.ts";
import type { VolumeDeps, VolumeKind } from "./kind.ts";

const defaultMode = 0o644;
const openToAll = 0o777;

/** A ConfigMap as files on disk.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#configmap */
export const configMap: VolumeKind = {
  refreshes: true,
  async setUp(deps, pod, volume, signal) {
    const source = volume.configMap ?? {};
    const selection = selectionOf(source, source.defaultMode);
    const payload = configMapPayload(await readConfigMap(deps, pod, source, signal), selection);
    const { uid } = pod.metadata;
    const path = volumeDirectory(deps.rootDir, uid, "configmap", volume.name);
    const prepare = async () => podSubdirectory(deps.rootDir, uid, "volumes", { path, mode: openToAll });
    await place(deps, { pod, volumeName: volume.name, path, mode: openToAll, prepare }, payload, signal);
    return { hostPath: path, readOnly: true };
  },
};

/** A Secret as files in memory.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#secret */
export const secret: VolumeKind = {
  refreshes: true,
  async setUp(deps, pod, volume, signal) {
    const source = volume.secret ?? {};
    const reference = { name: source.secretName, optional: source.optional };
    const payload = secretPayload(
      await readSecret(deps, pod, reference, signal),
      selectionOf(source, source.defaultMode),
    );
    const { uid } = pod.metadata;
    const path = volumeDirectory(deps.rootDir, uid, "secret", volume.name);
    const prepare = async () => memoryDirectory(deps, { uid, path }, memoryBound(deps, pod), signal).then(() => []);
    await place(deps, { pod, volumeName: volume.name, path, mode: tmpfsMode, prepare }, payload, signal);
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
  return orNone(objects.configMap(pod.metadata.namespace, name, signal), optional);
}

/** Reads a Secret; undefined if an optional one is missing. */
export function readSecret(
  { objects }: VolumeDeps,
  pod: Pod,
  { name = "", optional }: Reference,
  signal: AbortSignal,
): Promise<Secret | undefined> {
  return orNone(objects.secret(pod.metadata.namespace, name, signal), optional);
}

function orNone<T>(read: Promise<T>, optional: boolean | undefined): Promise<T | undefined> {
  return optional ? ignoreNotFound(read) : read;
}
