/** Version of graftlet itself, the same as in package.json. */
export const graftletVersion = "0.1.0";

/** The Kubernetes version whose kubelet graftlet replaces; the Node reports it as the kubelet's version. */
export const kubeletVersion = "v1.36.3";
