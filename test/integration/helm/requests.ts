import { newKey, signingRequest } from "../../../src/certificates/signing-request.ts";
import type { Node } from "../../../src/objects.ts";
import type { Cluster } from "../../harness/cluster.ts";
import { addresses } from "../../harness/namespaces.ts";
import { release } from "../../harness/helm-lab.ts";

const serving = "kubernetes.io/kubelet-serving";

/** A certificate that somebody asks for. */
export interface Asked {
  readonly name: string;
  /** PEM. */
  readonly request: string;
  /** A node; else the administrator asks. */
  readonly as?: string;
  /** The group that the node is in; that of all nodes unless given, and then the API server sees to the common name. */
  readonly group?: string;
  readonly signerName?: string;
  readonly usages?: readonly string[];
}

/** Makes a CertificateSigningRequest. @throws when the API server refuses it. */
export async function ask(cluster: Cluster, asked: Asked): Promise<void> {
  const {
    name,
    request,
    as,
    group = "system:nodes",
    signerName = serving,
    usages = ["digital signature", "server auth"],
  } = asked;
  const object = {
    apiVersion: "certificates.k8s.io/v1",
    kind: "CertificateSigningRequest",
    metadata: { name },
    spec: { signerName, usages, request: Buffer.from(request).toString("base64") },
  };
  const who = as === undefined ? [] : [`--as=system:node:${as}`, `--as-group=${group}`];
  await cluster.mustKubectl(["create", "--filename=-", ...who], { stdin: JSON.stringify(object) });
}

/** Requests for the certificate of the release's node, and of one that has its name on others' doors, which graftlet has not made.
 *  @returns their names. */
export async function strangeRequests(cluster: Cluster): Promise<readonly string[]> {
  const node = release.node;
  const { status } = (await cluster.get<Node>("node", node)) ?? {};
  const address = status?.addresses?.find(({ type }) => type === "InternalIP")?.address ?? "";
  const named = async (of: string, ...names: readonly string[]) =>
    signingRequest({ commonName: `system:node:${of}`, organization: "system:nodes", names }, await newKey());
  const right = await named(node, node, address);
  const all: readonly Asked[] = [
    { name: "by-the-administrator", request: right },
    { name: "by-another-node", request: await named("node-1", node, address), as: "node-1" },
    { name: "of-the-api-server", request: await named(node, node, address, addresses.apiServerService), as: node },
    { name: "of-its-name", request: await named(node, node, "kubernetes.default.svc"), as: node },
    { name: "for-clients-too", request: right, as: node, usages: ["digital signature", "server auth", "client auth"] },
  ];
  for (const one of all) await ask(cluster, one);
  return all.map(({ name }) => name);
}
