/** Version of graftlet itself, as package.json has it. */
export const graftletVersion = "0.1.0";

/** The Kubernetes version whose kubelet graftlet stands in for: what the Node reports as its kubelet's. */
export const kubeletVersion = "v1.36.3";
