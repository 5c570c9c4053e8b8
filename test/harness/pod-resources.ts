import { closeSync, constants, openSync } from "node:fs";
import { join } from "node:path";
import { credentials } from "@grpc/grpc-js";
import {
  type ListPodResourcesResponse,
  type PodResources,
  PodResourcesListerClient,
} from "../../src/gen/pod-resources.ts";
import type { Layout } from "./state.ts";

/** Lists resources by pod, as a monitor on the machine does: over the kubelet's socket. */
export async function listPodResources({ kubeletRoot }: Pick<Layout, "kubeletRoot">): Promise<readonly PodResources[]> {
  const folder = openSync(join(kubeletRoot, "pod-resources"), constants.O_DIRECTORY);
  // The whole path is longer than a socket's may be.
  const address = `unix:///proc/self/fd/${folder}/kubelet.sock`;
  const client = new PodResourcesListerClient(address, credentials.createInsecure());
  try {
    const { podResources } = await new Promise<ListPodResourcesResponse>((resolve, reject) =>
      client.list({}, (error, response) => (error ? reject(error) : resolve(response))),
    );
    return podResources;
  } finally {
    client.close();
    closeSync(folder);
  }
}
