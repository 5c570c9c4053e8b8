import { request } from "node:http";
import { text } from "node:stream/consumers";
import type { Cluster } from "./cluster.ts";
import { type DockerSettings, writeDockerConfig } from "./docker.ts";
import { type RunOptions, run } from "./processes.ts";
import { readState } from "./state.ts";

/** A container as the daemon lists it. */
export interface EngineContainer {
  readonly Id: string;
  readonly Names: readonly string[];
  readonly State: string;
  readonly Labels: Readonly<Record<string, string>>;
}

/** What of a container's inspection tests look at. */
export interface EngineInspection {
  readonly Id: string;
  readonly Name: string;
  readonly State: { readonly Status: string; readonly Pid: number; readonly StartedAt: string };
}

/** A network as the daemon lists it. */
export interface EngineNetwork {
  readonly Id: string;
  readonly Name: string;
  readonly Labels: Readonly<Record<string, string>>;
  readonly IPAM: { readonly Config: readonly { readonly Subnet?: string }[] | null };
}

/** What runs, by container name: it is undisturbed as long as this stays the same. */
export type EngineStanding = Readonly<Record<string, string>>;

/** A cluster's Docker Engine, looked at and handled past the agent. */
export interface DockerEngine {
  /** Runs the `docker` command against it and returns what it said. Throws with its error. */
  docker(args: readonly string[], options?: RunOptions): Promise<string>;
  /** All containers, ended ones too. @param labels what their labels have to say, `NAME=VALUE` or `NAME`. */
  containers(...labels: readonly string[]): Promise<readonly EngineContainer[]>;
  inspect(idOrName: string): Promise<EngineInspection>;
  /** The running containers of these labels: ID, state, first process and start of each. */
  standing(...labels: readonly string[]): Promise<EngineStanding>;
  networks(): Promise<readonly EngineNetwork[]>;
  /** All images: ID and names. */
  images(): Promise<readonly string[]>;
  /** The daemon's process. */
  pid(): number;
  /** Starts it again after `cluster.killRuntime`, with live-restore unless told otherwise, until it answers. */
  start(settings?: DockerSettings): Promise<void>;
}

/** The Docker Engine of a cluster that is up. */
export function dockerEngine(cluster: Cluster): DockerEngine {
  const { layout, tools } = cluster;
  const ask = <T>(path: string): Promise<T> => askEngine<T>(layout.dockerSocket, path);
  const inspect = (idOrName: string): Promise<EngineInspection> => ask(`/containers/${idOrName}/json`);
  const containers = (...labels: readonly string[]): Promise<readonly EngineContainer[]> =>
    ask(`/containers/json?all=true&filters=${encodeURIComponent(JSON.stringify({ label: labels }))}`);
  return {
    async docker(args, options) {
      const argv = [tools.path("docker"), "--host", `unix://${layout.dockerSocket}`, ...args];
      const done = await run(argv, { ...options, env: { DOCKER_CONFIG: layout.docker, ...options?.env } });
      if (done.code !== 0) throw new Error(`docker ${args.join(" ")} failed with ${done.code}: ${done.stderr.trim()}`);
      return done.stdout;
    },
    containers,
    inspect,
    async standing(...labels) {
      const running = (await containers(...labels)).filter(({ State }) => State === "running");
      const all = await Promise.all(running.map(({ Id }) => inspect(Id)));
      return Object.fromEntries(
        all
          .map(
            ({ Id, Name, State }) => [Name.slice(1), `${Id} ${State.Status} ${State.Pid} ${State.StartedAt}`] as const,
          )
          .sort(([a], [b]) => a.localeCompare(b)),
      );
    },
    networks: () => ask("/networks"),
    async images() {
      const list = await ask<readonly { Id: string; RepoTags: readonly string[] | null }[]>("/images/json?all=true");
      return list.map(({ Id, RepoTags }) => `${Id} ${(RepoTags ?? []).toSorted().join(" ")}`).sort();
    },
    pid() {
      const id = readState(layout)?.daemons["dockerd"];
      if (!id) throw new Error(`cluster ${layout.name} has no Docker Engine`);
      return id.pid;
    },
    async start(settings) {
      writeDockerConfig(layout, settings);
      await cluster.startRuntime();
    },
  };
}

function askEngine<T>(socketPath: string, path: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath, path: `/v1.41${path}`, agent: false }, (answer) => {
      text(answer).then((said) => {
        if (answer.statusCode === 200) resolve(JSON.parse(said) as T);
        else reject(new Error(`GET ${path} was answered with ${answer.statusCode}: ${said.trim()}`));
      }, reject);
    });
    asked.once("error", reject);
    asked.end();
  });
}
