import type * as csi from "./gen/csi.ts";
import type { CSIDriver, PersistentVolume, PersistentVolumeClaim, VolumeAttachment } from "./objects.ts";

// Ports of what vendors run on the target and the node speaks to: plugins that register, and the storage drivers among them; and of
// the claims that they serve.

/** A plugin that asks to be registered. */
export interface RegisteringPlugin {
  readonly name: string;
  /** Path on the target of the socket that it serves its type on. */
  readonly endpoint: string;
  /** Versions of that service. */
  readonly versions: readonly string[];
}

/** Takes plugins of one type. */
export interface PluginHandler {
  /** @throws why a plugin cannot be taken. */
  validate(plugin: RegisteringPlugin): void;
  /** @throws why a plugin was not taken. */
  register(plugin: RegisteringPlugin, signal: AbortSignal): Promise<void>;
  /** A registered plugin has gone. Failures are the handler's to report. */
  deregister(plugin: RegisteringPlugin, signal: AbortSignal): Promise<void>;
}

/** The node service of a storage driver. Every call throws CodedError, whose message is the failure in Go's format. A call under way
 *  is not cut off by anything but its time limit: the driver would go on, and nobody knew how far it came.
 *  @see https://github.com/container-storage-interface/spec/blob/master/spec.md#node-service-rpc */
export interface StorageDriver {
  capabilities(): Promise<ReadonlySet<csi.NodeServiceCapability_RPC_Type>>;
  stage(request: csi.NodeStageVolumeRequest): Promise<void>;
  unstage(request: csi.NodeUnstageVolumeRequest): Promise<void>;
  publish(request: csi.NodePublishVolumeRequest): Promise<void>;
  unpublish(request: csi.NodeUnpublishVolumeRequest): Promise<void>;
  /** Only of a driver that has EXPAND_VOLUME. */
  expand(request: csi.NodeExpandVolumeRequest): Promise<void>;
  /** Only of a driver that has GET_VOLUME_STATS. */
  stats(request: csi.NodeGetVolumeStatsRequest): Promise<csi.NodeGetVolumeStatsResponse>;
}

/** Storage drivers that are registered on the target, and what the cluster says of them. */
export interface StorageDrivers {
  /** @throws not_found, in the kubelet's words, where none of that name is registered. */
  driver(name: string): StorageDriver;
  /** The object of a driver in the cluster; undefined where there is none. */
  about(name: string, signal: AbortSignal): Promise<CSIDriver | undefined>;
  /** Asks a driver anew for the most volumes that the node can have, and shows it. @throws CodedError in the kubelet's words. */
  refresh(name: string, signal: AbortSignal): Promise<void>;
  /** The attachment of that name. @throws not_found in the API server's words. */
  attachment(name: string, signal: AbortSignal): Promise<VolumeAttachment>;
}

/** Claims of pods, and the volumes that they are bound to, as the API server has them now. Every call throws in its words. */
export interface Claims {
  claim(namespace: string, name: string, signal: AbortSignal): Promise<PersistentVolumeClaim>;
  persistentVolume(name: string, signal: AbortSignal): Promise<PersistentVolume>;
  /** Changes the status of a claim by a strategic merge patch. @returns the claim as it is then. */
  patchStatus(claim: PersistentVolumeClaim, patch: object, signal: AbortSignal): Promise<PersistentVolumeClaim>;
}
