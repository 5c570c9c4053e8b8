import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { ContainerStatus, Pod } from "../../src/objects.ts";
import { podNameLabel } from "../../src/pod/labels.ts";
import { type Kind, kinds } from "../container-kinds.ts";
import type { Cluster } from "./cluster.ts";
import { type ContainerDraft, type Pods, type SpecDraft, images } from "./pods.ts";
import { runtimeDaemons } from "./runtime-daemon.ts";
import { runtimeLenses } from "./runtime-lens.ts";

/** What the containers of a pod do after each has written its kind to the pod's file of starts. */
export interface KindsPod {
  /** The kinds that it has, all unless given; an ephemeral container is added once main runs. */
  readonly kinds?: readonly Kind[];
  /** A container's part of the shell script; init containers end after it, the others stay. */
  readonly script?: (kind: Kind) => string;
  /** Fields of a container. */
  readonly fields?: (kind: Kind) => ContainerDraft;
  readonly spec?: SpecDraft;
}

/** Pods with a container of each kind, called as its kind, on one cluster. */
export interface KindsPods {
  create(name: string, pod?: KindsPod): Promise<void>;
  /** Adds the ephemeral container of a pod whose main container runs. */
  debug(name: string, pod?: KindsPod): Promise<void>;
  /** Kinds of the containers that have started, in order. */
  starts(name: string): readonly string[];
  /** Directory of a pod's files on the machine; containers have it at `/runs`. */
  readonly runs: string;
}

/** @param cluster whose machine is this one: the starts are read from its files. */
export function kindsPods({ layout, nodeName }: Cluster, pods: Pods): KindsPods {
  const runs = join(layout.dir, "runs");
  mkdirSync(runs, { recursive: true });
  const container = (name: string, kind: Kind, { script, fields }: KindsPod): ContainerDraft => {
    const { volumeMounts = [], ...more } = fields?.(kind) ?? {};
    const stay = kind === "init" ? "" : "; exec sleep infinity";
    return {
      name: kind,
      image: images.busybox,
      command: ["sh", "-c", `echo ${kind} >> /runs/${name}; ${script?.(kind) ?? ":"}${stay}`],
      ...more,
      volumeMounts: [{ name: "runs", mountPath: "/runs" }, ...volumeMounts],
    };
  };
  const sidecar = { restartPolicy: "Always" } as const;
  const found: KindsPods = {
    runs,
    async create(name, pod = {}) {
      const { kinds: wanted = kinds, spec = {} } = pod;
      const init = (["init", "sidecar"] as const).filter((kind) => wanted.includes(kind));
      await pods.create(name, {
        nodeName,
        tolerations: [{ operator: "Exists" }],
        ...spec,
        volumes: [{ name: "runs", hostPath: { path: runs } }, ...(spec.volumes ?? [])],
        initContainers: init.map((kind) => ({ ...(kind === "sidecar" && sidecar), ...container(name, kind, pod) })),
        containers: [container(name, "main", pod)],
      });
      if (wanted.includes("ephemeral")) await found.debug(name, pod);
    },
    async debug(name, pod = {}) {
      await pods.until(name, "main to run", (seen) => stateOf(seen, "main")?.state?.running !== undefined);
      await pods.api.patch(`/api/v1/namespaces/${pods.namespace}/pods/${name}/ephemeralcontainers`, {
        spec: { ephemeralContainers: [container(name, "ephemeral", pod)] },
      });
      await pods.until(name, "its ephemeral container to run", (seen) => {
        return stateOf(seen, "ephemeral")?.state?.running !== undefined;
      });
    },
    starts(name) {
      const file = join(runs, name);
      return existsSync(file) ? readFileSync(file, "utf8").trim().split("\n") : [];
    },
  };
  return found;
}

/** The status of the container of a kind. */
export function stateOf({ status = {} }: Pod, kind: Kind): ContainerStatus | undefined {
  const { initContainerStatuses = [], containerStatuses = [], ephemeralContainerStatuses = [] } = status;
  return [...initContainerStatuses, ...containerStatuses, ...ephemeralContainerStatuses].find(
    ({ name }) => name === kind,
  );
}

/** Kills the sandbox of a pod, past the agent. */
export async function killSandbox(cluster: Cluster, pod: string): Promise<void> {
  const { provider, runtimeSocket, tools } = cluster;
  await using lens = runtimeLenses[provider](cluster);
  const all = await lens.sandboxes(AbortSignal.timeout(10_000));
  const id = all.find(({ labels, ready }) => ready && labels[podNameLabel] === pod)?.id;
  if (id === undefined) throw new Error(`the pod ${pod} has no sandbox`);
  const kill =
    runtimeDaemons[provider].role === "dockerd"
      ? ["docker", "--host", `unix://${runtimeSocket}`, "kill", id]
      : [
          tools.path("ctr"),
          "--address",
          runtimeSocket,
          "--namespace",
          "k8s.io",
          "task",
          "kill",
          "--signal",
          "KILL",
          id,
        ];
  await cluster.mustRunInside(kill);
}
