import { cpSync } from "node:fs";
import { join } from "node:path";
import { certificatesIn, type ClusterCertificates, createClusterCertificates } from "./certificates.ts";
import type { Cluster } from "./cluster.ts";
import { apiServerNames } from "./control-plane.ts";
import { must } from "./processes.ts";
import { prepared } from "./prepared.ts";
import type { Layout } from "./state.ts";

/** Keeps the store of a cluster without a node, whose control plane has made all that it makes by itself, and the authorities that
 *  signed what is in it: clusters that begin with them spare the API server and the controllers that work. Ends the cluster's API
 *  server and etcd.
 *  @param folder that is to hold it, empty. */
export async function keepFirstStore(cluster: Cluster, folder: string): Promise<void> {
  await cluster.stopApiServer();
  await cluster.stopEtcd();
  const { etcd, pki } = cluster.layout;
  // etcd writes ahead into files of 64 MiB that are empty.
  await must(["cp", "--archive", "--sparse=always", etcd, join(folder, "etcd")]);
  await must(["cp", "--archive", pki, join(folder, "pki")]);
}

/** The certificates of a new cluster, and whether its store has its first objects: those of the run where one is prepared. */
export async function firstCertificates({
  etcd,
  pki,
}: Layout): Promise<{ issued: ClusterCertificates; stored: boolean }> {
  const store = prepared()?.store;
  if (store === undefined) return { issued: await createClusterCertificates(pki, apiServerNames), stored: false };
  cpSync(join(store, "pki"), pki, { recursive: true, preserveTimestamps: true });
  await must(["cp", "--archive", "--sparse=always", join(store, "etcd"), etcd]);
  return { issued: certificatesIn(pki), stored: true };
}
