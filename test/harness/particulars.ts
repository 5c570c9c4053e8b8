import { join } from "node:path";
import { type Agent, type AgentOptions, startGraftlet, startKubelet } from "./agent.ts";
import type { Cluster } from "./cluster.ts";
import { startCriProxy } from "./cri-proxy.ts";
import { startDockerProxy } from "./docker-proxy.ts";
import { must } from "./processes.ts";
import type { ProviderName } from "./runtime-daemon.ts";
import type { Moment, RuntimeProxy } from "./runtime-proxy.ts";

/** What tests must know of the provider under test, because users see it or because it is the runtime's own way. */
export interface Particulars {
  /** The runtime in container IDs and in the node's containerRuntimeVersion. */
  readonly runtimeName: string;
  /** Another agent that can use the runtime: the kubelet where it can, to tell the harness's faults from graftlet's. */
  startReference(cluster: Cluster, options?: AgentOptions): Promise<Agent>;
  startProxy(cluster: Cluster): Promise<RuntimeProxy>;
  /** The calls by which a pod is made and ended, in their order. */
  readonly moments: Readonly<Record<"start" | "end", readonly Moment[]>>;
  /** Gives an image that the runtime has another name. */
  tagImage(cluster: Cluster, image: string, name: string): Promise<void>;
}

export const particulars: Readonly<Record<ProviderName, Particulars>> = {
  cri: {
    runtimeName: "containerd",
    startReference: startKubelet,
    startProxy: (cluster) => startCriProxy(proxySockets(cluster)),
    moments: {
      start: [
        "before RunPodSandbox",
        "during RunPodSandbox",
        "after RunPodSandbox",
        "before PullImage",
        "during CreateContainer",
        "after CreateContainer",
        "after StartContainer",
      ],
      end: [
        "before StopContainer",
        "during StopContainer",
        "after StopContainer",
        "before StopPodSandbox",
        "after StopPodSandbox",
        "before RemoveContainer",
        "after RemovePodSandbox",
      ],
    },
    tagImage: async ({ runtimeSocket }, image, name) =>
      void (await must(["ctr", "--address", runtimeSocket, "--namespace", "k8s.io", "images", "tag", image, name])),
  },
  docker: {
    runtimeName: "docker",
    startReference: startGraftlet,
    startProxy: (cluster) => startDockerProxy(proxySockets(cluster)),
    moments: {
      start: [
        "before CreateSandbox",
        "during CreateSandbox",
        "after CreateSandbox",
        "during StartSandbox",
        "after StartSandbox",
        "before PullImage",
        "during CreateContainer",
        "after CreateContainer",
        "after StartContainer",
      ],
      end: [
        "before StopContainer",
        "during StopContainer",
        "after StopContainer",
        "before StopSandbox",
        "after StopSandbox",
        "before RemoveContainer",
        "after RemoveSandbox",
      ],
    },
    tagImage: async ({ runtimeSocket }, image, name) =>
      void (await must(["docker", "--host", `unix://${runtimeSocket}`, "image", "tag", image, name])),
  },
};

function proxySockets({ layout, runtimeSocket }: Cluster): { readonly socket: string; readonly upstream: string } {
  return { socket: join(layout.dir, "proxy.sock"), upstream: runtimeSocket };
}
