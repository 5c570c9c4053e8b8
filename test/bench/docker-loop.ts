import Dockerode from "dockerode";
import type { Cluster } from "../harness/cluster.ts";
import { sandboxImage } from "../harness/containerd-config.ts";
import type { BareLoop } from "./cri-loop.ts";

/** The least that a pod takes of a Docker Engine: one container that holds its namespaces and one in them, each made and started.
 *  It needs the network that a node has made. */
export async function openDockerLoop({ runtimeSocket, nodeName }: Cluster): Promise<BareLoop> {
  const engine = new Dockerode({ socketPath: runtimeSocket });
  const made: Dockerode.Container[] = [];
  const start = async (name: string, HostConfig: Dockerode.HostConfig): Promise<string> => {
    const container = await engine.createContainer({ name, Image: sandboxImage, HostConfig });
    made.push(container);
    await container.start();
    return container.id;
  };
  return {
    async run(name) {
      const began = performance.now();
      const sandbox = await start(`${name}-sandbox`, { NetworkMode: `graftlet-${nodeName}`, IpcMode: "shareable" });
      await start(name, { NetworkMode: `container:${sandbox}`, IpcMode: `container:${sandbox}` });
      return performance.now() - began;
    },
    async end() {
      const began = performance.now();
      await Promise.all(made.splice(0).map((container) => container.remove({ force: true })));
      return performance.now() - began;
    },
    async [Symbol.asyncDispose]() {},
  };
}
