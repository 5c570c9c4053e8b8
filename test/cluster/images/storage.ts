import type { ImageRecipe, LayerRecipe } from "./catalog.ts";

/** The built program of that name, at the root: most images of one program have it there. */
export function program(name: string, path = `/${name}`): LayerRecipe {
  return { name, fill: (root, tools) => root.program(tools.path(name), path) };
}

/** An image of one program, as Kubernetes' storage group makes them. */
function sidecar(name: string, tag: string): ImageRecipe {
  return {
    name: `sig-storage/${name}`,
    tags: [tag],
    layers: [program(name)],
    config: { Entrypoint: [`/${name}`] },
  };
}

/** A CSI driver, what goes beside one, and a provisioner without a driver. The tags are those of the manifests of Kubernetes' tests
 *  (test/e2e/testing-manifests/storage-csi, v1.36): the programs of others are of the nearest version that there is as a Go module,
 *  driver, registrar and probe are the project's own (test/cluster/tools/csi).
 *  @param shell what the driver copies volumes with, and what the provisioner's image has besides. */
export function storageImages(shell: LayerRecipe): readonly ImageRecipe[] {
  return [
    { ...sidecar("hostpathplugin", "v1.17.1"), layers: [shell, program("hostpathplugin")] },
    sidecar("csi-node-driver-registrar", "v2.16.0"),
    sidecar("livenessprobe", "v2.18.0"),
    sidecar("csi-attacher", "v4.11.0"),
    sidecar("csi-provisioner", "v6.1.1"),
    sidecar("csi-resizer", "v2.1.0"),
    sidecar("csi-snapshotter", "v8.5.0"),
    {
      name: "rancher/local-path-provisioner",
      tags: ["v0.0.30"],
      layers: [shell, program("local-path-provisioner", "/usr/bin/local-path-provisioner")],
      config: { Cmd: ["local-path-provisioner"], Env: ["PATH=/usr/bin:/bin"] },
    },
  ];
}
