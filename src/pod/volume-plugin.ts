import type { Volume } from "../objects.ts";

const plugins: { readonly [source in keyof Volume]?: string } = {
  emptyDir: "kubernetes.io/empty-dir",
  hostPath: "kubernetes.io/host-path",
  configMap: "kubernetes.io/configmap",
  secret: "kubernetes.io/secret",
  projected: "kubernetes.io/projected",
  downwardAPI: "kubernetes.io/downward-api",
  image: "kubernetes.io/image",
  nfs: "kubernetes.io/nfs",
  iscsi: "kubernetes.io/iscsi",
  fc: "kubernetes.io/fc",
};

/** The plugin name of a volume in the kubelet's metrics; `N/A` if unknown. Pure. */
export function volumePlugin(volume: Volume): string {
  if (volume.csi) return `kubernetes.io/csi:${volume.csi.driver}`;
  for (const [source, plugin] of Object.entries(plugins))
    if (volume[source as keyof Volume] !== undefined) return plugin;
  return "N/A";
}
