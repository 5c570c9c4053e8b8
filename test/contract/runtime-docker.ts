import { type DockerSettings, writeDockerConfig } from "../harness/docker.ts";
import { type Finished, type RunOptions, run } from "../harness/processes.ts";
import { type RuntimeRig, startRuntimeRig } from "../harness/runtime-rig.ts";

/** A Docker Engine with registries of its own, in a network and a mount namespace of its own. */
export interface DockerRig extends RuntimeRig {
  /** Absolute path of its socket, the same inside and outside. */
  readonly socket: string;
  /** Runs the `docker` command against it. */
  docker(args: readonly string[], options?: RunOptions): Promise<Finished>;
  /** SIGKILL: its containerd ends with it, its containers live on until the next start says what becomes of them. */
  kill(): Promise<void>;
  /** SIGTERM: what a service manager does. Without live-restore its containers are stopped. */
  stop(): Promise<void>;
  /** Starts it again, until it answers; with live-restore unless told otherwise. */
  start(settings?: DockerSettings): Promise<void>;
  /** SIGSTOP and SIGCONT: it takes connections and answers nobody. */
  freeze(): void;
  thaw(): void;
}

/** Debian's Docker Engine as the test cluster has it, without the cluster. Removed when disposed of or when this process ends. */
export async function startDockerRig(name: string, provider: "docker" | "ssh-docker" = "docker"): Promise<DockerRig> {
  const rig = await startRuntimeRig(name, provider);
  const { layout, tools, daemons } = rig;
  return {
    ...rig,
    socket: layout.dockerSocket,
    docker: (args, options) =>
      run([tools.path("docker"), "--host", `unix://${layout.dockerSocket}`, ...args], {
        ...options,
        env: { DOCKER_CONFIG: layout.docker, ...options?.env },
      }),
    kill: () => daemons.kill("dockerd"),
    stop: () => daemons.stop("dockerd"),
    async start(settings) {
      writeDockerConfig(layout, settings);
      await daemons.startRuntime();
    },
    freeze: () => daemons.signal("dockerd", "SIGSTOP"),
    thaw: () => daemons.signal("dockerd", "SIGCONT"),
  };
}
