import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { certificatesIn, issue, pairIn, type Subject } from "./certificates.ts";
import type { Layout } from "./state.ts";

/**
 * Issues a client certificate and writes a kubeconfig that holds it; returns the file's path.
 * @see https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
 */
export async function writeKubeconfig(
  layout: Layout,
  server: string,
  name: string,
  who: Pick<Subject, "commonName" | "organization">,
): Promise<string> {
  const { ca } = certificatesIn(layout.pki);
  const pair = pairIn(layout.pki, name);
  await issue(pair, ca, { ...who, usage: "clientAuth" });
  const base64 = (path: string): string => readFileSync(path).toString("base64");
  const file = join(layout.dir, `${name}.kubeconfig`);
  const cluster = `graftlet-${layout.name}`;
  const content = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: cluster, cluster: { server, "certificate-authority-data": base64(ca.cert) } }],
    users: [{ name, user: { "client-certificate-data": base64(pair.cert), "client-key-data": base64(pair.key) } }],
    contexts: [{ name: cluster, context: { cluster, user: name, namespace: "default" } }],
    "current-context": cluster,
  };
  writeFileSync(file, stringify(content), { mode: 0o600 });
  return file;
}

/** A kubeconfig for a node by the identity that the Node authorizer knows. @see https://kubernetes.io/docs/reference/access-authn-authz/node/ */
export function writeNodeKubeconfig(layout: Layout, server: string, nodeName: string): Promise<string> {
  return writeKubeconfig(layout, server, `node-${nodeName}`, {
    commonName: `system:node:${nodeName}`,
    organization: "system:nodes",
  });
}
