import { once } from "node:events";
import { closeSync, constants, openSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { credentials } from "@grpc/grpc-js";
import {
  type ListPodResourcesResponse,
  type PodResources,
  PodResourcesListerClient,
} from "../../src/gen/pod-resources.ts";
import { PodsClient, type WatchPodsEvent } from "../../src/gen/pods.ts";
import type { Layout } from "./state.ts";

/** Lists resources by pod, as a monitor on the machine does: over the kubelet's socket. */
export async function listPodResources(layout: Pick<Layout, "kubeletRoot">): Promise<readonly PodResources[]> {
  return connected(layout, "pod-resources/kubelet.sock", async (address) => {
    const client = new PodResourcesListerClient(address, credentials.createInsecure());
    try {
      const { podResources } = await new Promise<ListPodResourcesResponse>((resolve, reject) =>
        client.list({}, (error, response) => (error ? reject(error) : resolve(response))),
      );
      return podResources;
    } finally {
      client.close();
    }
  });
}

/** The first pod of a watch of the Pods API: encoded. */
export async function firstWatchedPod(layout: Pick<Layout, "kubeletRoot">): Promise<Buffer> {
  return connected(layout, "pods-api/pods-api.sock", async (address) => {
    const client = new PodsClient(address, credentials.createInsecure());
    const call = client.watchPods({}).on("error", () => undefined);
    try {
      const [event] = (await once(call, "data")) as [WatchPodsEvent];
      return event.pod;
    } finally {
      call.cancel();
      client.close();
    }
  });
}

/** Calls with the address of a socket below the root directory, whose path is longer than a socket's may be. */
async function connected<T>(
  { kubeletRoot }: Pick<Layout, "kubeletRoot">,
  socket: string,
  call: (address: string) => Promise<T>,
): Promise<T> {
  const folder = openSync(join(kubeletRoot, dirname(socket)), constants.O_DIRECTORY);
  try {
    return await call(`unix:///proc/self/fd/${folder}/${basename(socket)}`);
  } finally {
    closeSync(folder);
  }
}
