import { createHash } from "node:crypto";
import { type CsiVolume, readCsiDriver, publishVolume } from "../persistent/csi-publish.ts";
import type { VolumePlugin } from "./plugin.ts";

/** An inline CSI ephemeral volume, which lives as long as its pod.
 *  @see https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#csi-ephemeral-volumes */
export const inlineCsi: VolumePlugin = {
  refreshes: false,
  async setUp(deps, pod, { name, csi: source }, signal) {
    const { driver = "", fsType = "", readOnly = false, volumeAttributes = {}, nodePublishSecretRef } = source ?? {};
    const { uid, namespace } = pod.metadata;
    const volume: CsiVolume = {
      name,
      lifecycle: "Ephemeral",
      driver,
      volumeHandle: `csi-${createHash("sha256").update(`${uid}${name}`).digest("hex")}`,
      fsType,
      attributes: volumeAttributes,
      mountFlags: [],
      accessModes: ["ReadWriteOnce"],
      readOnly,
      ...(nodePublishSecretRef?.name && { secret: { namespace, name: nodePublishSecretRef.name } }),
    };
    const csiDriver = await readCsiDriver(deps, driver, signal);
    const { capabilities: _, ...published } = await publishVolume(deps, pod, { volume, csiDriver }, signal);
    return { ...published, readOnly };
  },
};
