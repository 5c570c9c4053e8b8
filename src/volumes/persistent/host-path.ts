import { hostPath } from "../plugins/host-path.ts";
import type { PersistentVolumePlugin } from "./plugin.ts";

/** A hostPath PersistentVolume, used in place: it is not mounted, and fsGroup does not apply.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#hostpath */
export const persistentHostPath: PersistentVolumePlugin = {
  pluginName: "kubernetes.io/host-path",
  supportsMountOptions: false,
  id: ({ metadata }) => metadata.name,
  stage: async (_deps, { volume }) => volume.spec?.hostPath?.path ?? "",
  async publish(deps, { pod, volume: { metadata, spec } }, staged, signal) {
    const source = { path: staged, ...(spec?.hostPath?.type && { type: spec.hostPath.type }) };
    const { hostPath: path } = await hostPath.setUp(deps, pod, { name: metadata.name, hostPath: source }, signal);
    return { hostPath: path };
  },
};
