import { createHash } from "node:crypto";
import { isIPv4 } from "node:net";
import type { ApiClient } from "../api/client.ts";
import { applyObject } from "../api/apply.ts";
import { putSlice } from "../api/endpoint-slices.ts";
import { ignoreCode } from "../lib/errors.ts";
import type { WrittenSlice } from "../objects.ts";
import { type GraftedNode, ownedBy } from "./grafted-node.ts";

/** Port of a node's kubelet API at its Service. */
const kubeletPort = 10_250;
const managed = { "app.kubernetes.io/managed-by": "graftlet" };

/** Name of the Service of a node's kubelet API: a DNS label that is unique for each node. */
export function kubeletServiceName(nodeName: string): string {
  const name = `graftlet-${nodeName}`;
  if (name.length <= 63 && !name.includes(".")) return name;
  const digest = createHash("sha256").update(nodeName).digest("hex").slice(0, 8);
  return `${name.replaceAll(".", "-").slice(0, 54).replace(/-+$/, "")}-${digest}`;
}

/** Name of the Secret that stores a node's certificates, so that they outlive graftlet's Pod. */
export function certificateSecretName(nodeName: string): string {
  return `graftlet-certificates-${nodeName}`;
}

/** Creates the Secret of a node's certificates unless it exists. It is deleted with the object. */
export async function createCertificateSecret(
  client: Pick<ApiClient, "create">,
  object: GraftedNode,
  signal: AbortSignal,
): Promise<void> {
  const { name, namespace } = object.metadata;
  const metadata = { name: certificateSecretName(name), labels: managed, ...ownedBy(object) };
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets`;
  await ignoreCode(client.create(path, { apiVersion: "v1", kind: "Secret", metadata }, { signal }), "already_exists");
}

/** Creates or updates the Service of a node's kubelet API. Its address stays the same for as long as the object exists. It has no
 *  selector: its endpoint is the Pod that serves the node, at the node's port in that Pod.
 *  The release's ServiceMonitor selects it by its label, and takes the node's name from its annotation.
 *  @param at.addresses addresses of graftlet's Pod. */
export async function publishKubeletService(
  client: Pick<ApiClient, "patch">,
  object: GraftedNode,
  at: { readonly addresses: readonly string[]; readonly port: number; readonly release: string },
  signal: AbortSignal,
): Promise<void> {
  const { namespace } = object.metadata;
  const name = kubeletServiceName(object.metadata.name);
  const labels = { ...managed, "app.kubernetes.io/instance": at.release };
  const annotations = { "graftlet.dev/node": object.metadata.name };
  const metadata = { name, namespace, labels, annotations, ...ownedBy(object) };
  const spec = { ports: [{ name: "kubelet", port: kubeletPort, targetPort: at.port, protocol: "TCP" }] };
  const service = { apiVersion: "v1", kind: "Service", metadata, spec };
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/services/${name}`;
  await applyObject(client, path, service, signal);
  const ofService = {
    ...labels,
    "kubernetes.io/service-name": name,
    "endpointslice.kubernetes.io/managed-by": "graftlet",
  };
  for (const addressType of ["IPv4", "IPv6"] as const) {
    const addresses = at.addresses.filter((address) => isIPv4(address) === (addressType === "IPv4")).slice(0, 1);
    if (addresses.length === 0) continue;
    const slice: WrittenSlice = {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { ...metadata, name: `${name}-${addressType.toLowerCase()}`, labels: ofService },
      addressType,
      ports: [{ name: "kubelet", port: at.port, protocol: "TCP" }],
      endpoints: [{ addresses, conditions: { ready: true } }],
    };
    await putSlice(client, slice, signal);
  }
}
