import type * as csi from "./gen/csi.ts";
import type { CSIDriver, PersistentVolume, PersistentVolumeClaim, VolumeAttachment } from "./objects.ts";

// Ports to vendor components on the target, plugins and CSI drivers among them, and to the claims that they serve.

/** A plugin that requests registration. */
export interface RegisteringPlugin {
  readonly name: string;
  /** Path on the target of the socket for the plugin's own service. */
  readonly endpoint: string;
  /** Versions of that service that the plugin supports. */
  readonly versions: readonly string[];
}

/** Registers plugins of one type. */
export interface PluginHandler {
  /** @throws why a plugin is invalid. */
  validate(plugin: RegisteringPlugin): void;
  /** @throws why a plugin cannot be registered. */
  register(plugin: RegisteringPlugin, signal: AbortSignal): Promise<void>;
  /** A registered plugin is gone. The handler reports its own failures. */
  deregister(plugin: RegisteringPlugin, signal: AbortSignal): Promise<void>;
}

/** The node service of a CSI driver. Every call throws CodedError, whose message is the failure in Go's format. A call is
 *  interrupted only by its timeout: the driver would continue, and its progress would be unknown.
 *  @see https://github.com/container-storage-interface/spec/blob/master/spec.md#node-service-rpc */
export interface StorageDriver {
  capabilities(): Promise<ReadonlySet<csi.NodeServiceCapability_RPC_Type>>;
  stage(request: csi.NodeStageVolumeRequest): Promise<void>;
  unstage(request: csi.NodeUnstageVolumeRequest): Promise<void>;
  publish(request: csi.NodePublishVolumeRequest): Promise<void>;
  unpublish(request: csi.NodeUnpublishVolumeRequest): Promise<void>;
  /** Requires EXPAND_VOLUME. */
  expand(request: csi.NodeExpandVolumeRequest): Promise<void>;
  /** Requires GET_VOLUME_STATS. */
  stats(request: csi.NodeGetVolumeStatsRequest): Promise<csi.NodeGetVolumeStatsResponse>;
}

/** CSI drivers registered on the target, and the cluster's objects about them. */
export interface StorageDrivers {
  /** @throws not_found, in the kubelet's words, for an unregistered driver. */
  driver(name: string): StorageDriver;
  /** The CSIDriver object of a driver; undefined if there is none. */
  csiDriver(name: string, signal: AbortSignal): Promise<CSIDriver | undefined>;
  /** Reads the driver's volume limit again, and updates the CSINode. @throws CodedError in the kubelet's words. */
  refreshLimit(name: string, signal: AbortSignal): Promise<void>;
  /** A VolumeAttachment by name. @throws not_found in the API server's words. */
  volumeAttachment(name: string, signal: AbortSignal): Promise<VolumeAttachment>;
}

/** Claims of pods and the volumes that they are bound to, read from the API server. Every call throws in its words. */
export interface Claims {
  claim(namespace: string, name: string, signal: AbortSignal): Promise<PersistentVolumeClaim>;
  persistentVolume(name: string, signal: AbortSignal): Promise<PersistentVolume>;
  /** Patches the status of a claim with a strategic merge patch. @returns the updated claim. */
  patchStatus(claim: PersistentVolumeClaim, patch: object, signal: AbortSignal): Promise<PersistentVolumeClaim>;
}
