import type { Cluster } from "./cluster.ts";

/** A pull secret for the registry that asks for credentials. @param password the cluster's own unless given. */
export function pullSecret({ privateCredentials }: Cluster, name: string, password = privateCredentials.password) {
  const { server, username } = privateCredentials;
  const auth = Buffer.from(`${username}:${password}`).toString("base64");
  const config = Buffer.from(JSON.stringify({ auths: { [server]: { auth } } })).toString("base64");
  const type = "kubernetes.io/dockerconfigjson";
  return { apiVersion: "v1", kind: "Secret", metadata: { name }, type, data: { ".dockerconfigjson": config } };
}
