import { catalog, type ImageRecipe } from "../images/catalog.ts";

/** Programs and images that a cluster is brought up with. */
export interface Kit {
  /** Programs built from the Go module beside this file. */
  readonly programs: readonly string[];
  /** Images that its registries serve. */
  readonly images: readonly ImageRecipe[];
}

/** Programs that run in pods, and the folder beside this file whose Go module builds each. An image has the layer of that name. */
const inImages: Readonly<Record<string, string>> = {
  agnhost: ".",
  coredns: "coredns",
  "metrics-server": "metrics-server",
  hostpathplugin: "csi",
  "csi-node-driver-registrar": "csi",
  livenessprobe: "csi",
  "csi-attacher": "csi-sidecars",
  "csi-provisioner": "csi-sidecars",
  "csi-resizer": "csi-sidecars",
  "csi-snapshotter": "csi-sidecars",
  "local-path-provisioner": "local-path-provisioner",
  "nfs-provisioner": "nfs-provisioner",
  "sample-device-plugin": "conformance",
};

/** A control plane, a proxy, and kubectl. */
const ofCluster = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"];

/** A program in an image, and the module that builds it. */
export interface ImageProgram {
  readonly name: string;
  readonly module: string;
}

/** The built programs that an image is made with. */
export function programsIn({ layers }: ImageRecipe): ImageProgram[] {
  return layers.flatMap(({ name }) => (inImages[name] === undefined ? [] : [{ name, module: inImages[name] }]));
}

/** Images of servers that few tests start: whoever starts one adds its image. */
const isOnDemand = (image: ImageRecipe): boolean =>
  image.isOnDemand ?? programsIn(image).some(({ module }) => module !== ".");

/** Everything that tests take for granted. */
export const testKit: Kit = kitOf([...ofCluster, "kubelet"], (image) => !isOnDemand(image));

/** Images that demo.yaml and `helm test` name, and the sandbox's. */
const demoImages = ["pause", "library/busybox", "library/nginx", "e2e-test-images/busybox"];

/** Programs and images of the demo alone. `kubelet` where the real one runs a node of it. */
export function demoKit({ kubelet }: { readonly kubelet: boolean }): Kit {
  return kitOf([...ofCluster, ...(kubelet ? ["kubelet"] : [])], ({ name }) => demoImages.includes(name));
}

function kitOf(programs: readonly string[], among: (image: ImageRecipe) => boolean): Kit {
  const images = catalog.filter(among);
  return { programs: [...new Set([...programs, ...images.flatMap(programsIn).map(({ name }) => name)])], images };
}
