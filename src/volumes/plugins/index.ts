import type { Volume } from "../../objects.ts";
import { claim, inlineIscsi, migrated } from "../persistent/claim.ts";
import { nfs } from "../nfs.ts";
import { inlineCsi } from "./inline-csi.ts";
import { downwardAPI } from "./downward-api.ts";
import { emptyDir } from "./empty-dir.ts";
import { hostPath } from "./host-path.ts";
import type { VolumePlugin } from "./plugin.ts";
import { configMap, secret } from "./objects.ts";
import { projected } from "./projected.ts";

const plugins = {
  emptyDir,
  hostPath,
  configMap,
  secret,
  projected,
  downwardAPI,
  persistentVolumeClaim: claim,
  ephemeral: claim,
  csi: inlineCsi,
  nfs,
  iscsi: inlineIscsi,
  awsElasticBlockStore: migrated,
  azureDisk: migrated,
  azureFile: migrated,
  cinder: migrated,
  gcePersistentDisk: migrated,
  portworxVolume: migrated,
  vsphereVolume: migrated,
} as const satisfies Readonly<Record<string, VolumePlugin>>;

/** The plugin for a volume; undefined for an unsupported type. */
export function volumePluginFor(volume: Volume): VolumePlugin | undefined {
  for (const [field, plugin] of Object.entries(plugins))
    if (volume[field as keyof typeof plugins] !== undefined) return plugin;
  return undefined;
}
