import Dockerode from "dockerode";
import { criRuntime } from "../../providers/cri/runtime.ts";
import { localHost } from "../../providers/local/host.ts";
import { ContainerState, type ContainerStatus, PodSandboxState } from "../../src/gen/cri.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { hasCode } from "../../src/lib/errors.ts";
import { createLogger } from "../../src/lib/log.ts";
import { containerRestartCountAnnotation, nodeLabel } from "../../src/pod/labels.ts";
import type { Runtime } from "../../src/seams/runtime.ts";
import type { Cluster } from "./cluster.ts";
import type { ProviderName } from "./runtime-daemon.ts";

/** A pod's sandbox as its runtime has it. */
export interface SeenSandbox {
  readonly id: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly ready: boolean;
  /** Its address in the pods' network; undefined or empty where it has none. */
  readonly address: string | undefined;
}

/** A container as its runtime has it; times are milliseconds since the epoch. */
export interface SeenContainer {
  readonly id: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly restartCount: number;
  readonly state: "created" | "running" | "exited" | "unknown";
  readonly createdAt: number;
  readonly startedAt: number;
  readonly finishedAt: number;
  readonly exitCode: number;
}

/** What a runtime has, asked on its own socket, past the agent. */
export interface RuntimeLens extends AsyncDisposable {
  sandboxes(signal: AbortSignal): Promise<SeenSandbox[]>;
  containers(signal: AbortSignal): Promise<SeenContainer[]>;
}

/** How each provider's runtime is looked at. */
export const runtimeLenses: Readonly<Record<ProviderName, (cluster: Cluster) => RuntimeLens>> = {
  cri: criLens,
  docker: dockerLens,
  ssh: criLens,
  "ssh-docker": dockerLens,
  "ssh-systemd": criLens,
  "ssh-docker-systemd": dockerLens,
  "ssh-guest": criLens,
  "ssh-docker-guest": dockerLens,
};

/** A client of the runtime of a cluster whose runtime speaks CRI. */
export function openCri({ runtimeSocket }: Cluster): Runtime {
  const clock = systemClock();
  return criRuntime({
    runtimeSocket,
    imageSocket: runtimeSocket,
    requestTimeoutMs: 10_000,
    host: localHost({ clock }),
    clock,
    log: createLogger(0),
  });
}

function criLens(cluster: Cluster): RuntimeLens {
  const runtime = openCri(cluster);
  const isGone = (error: unknown) => hasCode(error, "not_found");
  return {
    async sandboxes(signal) {
      const found = await present(
        await runtime.listPodSandbox(undefined, signal),
        async ({ id }) => (await runtime.podSandboxStatus(id, signal)).status,
        isGone,
      );
      return found.map(({ id, labels, state, network }) => ({
        id,
        labels,
        ready: state === PodSandboxState.SANDBOX_READY,
        address: network?.ip,
      }));
    },
    async containers(signal) {
      const found = await present(
        await runtime.listContainers(undefined, signal),
        async ({ id }) => (await runtime.containerStatus(id, signal)).status,
        isGone,
      );
      return found.map(seenByCri);
    },
    [Symbol.asyncDispose]: () => runtime[Symbol.asyncDispose](),
  };
}

const criStates: Readonly<Partial<Record<ContainerState, SeenContainer["state"]>>> = {
  [ContainerState.CONTAINER_CREATED]: "created",
  [ContainerState.CONTAINER_RUNNING]: "running",
  [ContainerState.CONTAINER_EXITED]: "exited",
};

function seenByCri(status: ContainerStatus): SeenContainer {
  const milliseconds = (nanoseconds: bigint) => Number(nanoseconds / 1_000_000n);
  return {
    id: status.id,
    labels: status.labels,
    restartCount: Number(status.annotations[containerRestartCountAnnotation] ?? 0),
    state: criStates[status.state] ?? "unknown",
    createdAt: milliseconds(status.createdAt),
    startedAt: milliseconds(status.startedAt),
    finishedAt: milliseconds(status.finishedAt),
    exitCode: status.exitCode,
  };
}

/** Only what carries the node's label: the rest of a Docker Engine is not its business.
 *  @see cri-dockerd for the other labels: the kind of a container, annotations with a prefix. */
function dockerLens({ runtimeSocket, nodeName }: Cluster): RuntimeLens {
  const engine = new Dockerode({ socketPath: runtimeSocket, timeout: 10_000 });
  const isGone = (error: unknown) => error instanceof Error && "statusCode" in error && error.statusCode === 404;
  const inspected = async (kind: "podsandbox" | "container") => {
    const label = [`${nodeLabel}=${nodeName}`, `io.kubernetes.docker.type=${kind}`];
    const listed = await engine.listContainers({ all: true, filters: { label } });
    return present(listed, ({ Id }) => engine.getContainer(Id).inspect(), isGone);
  };
  return {
    sandboxes: async () =>
      (await inspected("podsandbox")).map(({ Id, Config, State, NetworkSettings }) => ({
        id: Id,
        labels: Config.Labels,
        ready: State.Running,
        address: Object.values(NetworkSettings.Networks)[0]?.IPAddress,
      })),
    containers: async () => (await inspected("container")).map(seenByDocker),
    async [Symbol.asyncDispose]() {},
  };
}

/** One that could not be started stays "created" with an exit code: it has ended, as cri-dockerd tells it, when it was made. */
function seenByDocker({ Id, Config, State, Created }: Dockerode.ContainerInspectInfo): SeenContainer {
  const failed = State.Status === "created" && State.ExitCode !== 0;
  const states: Readonly<Record<string, SeenContainer["state"]>> = {
    created: "created",
    running: "running",
    paused: "running",
    exited: "exited",
    dead: "exited",
  };
  return {
    id: Id,
    labels: Config.Labels,
    restartCount: Number(Config.Labels[`annotation.${containerRestartCountAnnotation}`] ?? 0),
    state: failed ? "exited" : (states[State.Status] ?? "unknown"),
    createdAt: Date.parse(Created),
    startedAt: Date.parse(failed ? Created : State.StartedAt),
    // Docker may say of a program that ended at once that it ended before it began.
    finishedAt: Math.max(
      Date.parse(failed ? Created : State.FinishedAt),
      Date.parse(failed ? Created : State.StartedAt),
    ),
    exitCode: State.ExitCode,
  };
}

/** What could be looked at closer; what went away in between is left out. */
async function present<T, U>(
  listed: readonly T[],
  look: (item: T) => Promise<U | undefined>,
  isGone: (error: unknown) => boolean,
): Promise<U[]> {
  const found = await Promise.all(
    listed.map(async (item) => {
      try {
        return await look(item);
      } catch (error) {
        if (isGone(error)) return undefined;
        throw error;
      }
    }),
  );
  return found.filter((item) => item !== undefined);
}
