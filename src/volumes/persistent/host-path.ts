import { hostPath } from "../kinds/host-path.ts";
import type { PersistentKind } from "./kind.ts";

/** A hostPath PersistentVolume, used in place: it is not mounted, and fsGroup does not apply.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#hostpath */
export const persistentHostPath: PersistentKind = {
  plugin: "kubernetes.io/host-path",
  takesMountOptions: false,
  id: ({ metadata }) => metadata.name,
  stage: async (_deps, { volume }) => volume.spec?.hostPath?.path ?? "",
  async publish(deps, { pod, volume: { metadata, spec } }, staged, signal) {
    const source = { path: staged, ...(spec?.hostPath?.type && { type: spec.hostPath.type }) };
    const { hostPath: path } = await hostPath.setUp(deps, pod, { name: metadata.name, hostPath: source }, signal);
    return { hostPath: path };
  },
};
