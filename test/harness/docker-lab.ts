import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Node } from "../../src/objects.ts";
import { type AgentOptions, startGraftlet } from "./agent.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { type DockerEngine, dockerEngine } from "./docker-engine.ts";
import { type Invariants, createInvariants } from "./invariants.ts";
import type { Lab } from "./lab.ts";
import { openPods, shell, type SpecDraft } from "./pods.ts";
import { providerUnderTest } from "./runtime-daemon.ts";

/** A cluster whose one node graftlet runs on a Docker Engine: on its own machine, or over SSH where that is under test. */
export interface DockerLab extends Lab {
  readonly engine: DockerEngine;
  readonly invariants: Invariants;
}

/** Starts all of it; throws, with everything taken down again, when the node does not become Ready. */
export async function startDockerLab(name: string, options: AgentOptions = {}): Promise<DockerLab> {
  await using stack = new AsyncDisposableStack();
  const provider = providerUnderTest() === "ssh-docker" ? "ssh-docker" : "docker";
  const cluster = stack.use(await startCluster({ name, provider }));
  const agent = stack.use(await startGraftlet(cluster, options));
  const pods = stack.use(await openPods(cluster));
  const invariants = stack.use(createInvariants(cluster));
  const whole = stack.move();
  const engine = dockerEngine(cluster);
  return { cluster, agent, pods, engine, invariants, [Symbol.asyncDispose]: () => whole.disposeAsync() };
}

/** A node's Ready condition as one line: `STATUS REASON MESSAGE`; empty while there is none. */
export async function readiness(cluster: Cluster, nodeName = cluster.nodeName): Promise<string> {
  const node = await cluster.get<Node>("node", nodeName);
  const ready = node?.status?.conditions?.find(({ type }) => type === "Ready");
  return ready ? `${ready.status} ${ready.reason} ${ready.message}` : "";
}

/** Waits until a node's Ready condition, as `readiness` writes it, matches. @returns how long that took, milliseconds. */
export async function untilReadiness(
  cluster: Cluster,
  pattern: RegExp,
  timeoutMs = 60_000,
  nodeName = cluster.nodeName,
): Promise<number> {
  const since = performance.now();
  await cluster.waitFor(
    `the node ${nodeName} to be ${pattern}`,
    async () => pattern.test(await readiness(cluster, nodeName)),
    { timeoutMs, everyMs: 200, explain: () => readiness(cluster, nodeName) },
  );
  return performance.now() - since;
}

/** A pod that writes a line to a file on the machine each time that its container starts, and then runs `script`. */
export function counted({ layout }: Cluster, name: string, script: string, more: SpecDraft = {}): SpecDraft {
  return {
    ...more,
    volumes: [{ name: "starts", hostPath: { path: join(layout.dir, "starts"), type: "DirectoryOrCreate" } }],
    containers: [
      shell(`echo started >> /starts/${name}; ${script}`, {
        volumeMounts: [{ name: "starts", mountPath: "/starts" }],
      }),
    ],
  };
}

/** How often the container of a counted pod has started. */
export function startsOf({ layout }: Cluster, name: string): number {
  const file = join(layout.dir, "starts", name);
  return existsSync(file) ? readFileSync(file, "utf8").trim().split("\n").length : 0;
}

/** Removes these pods, with a grace of a second, and waits until the API server has none of them. */
export async function removeAll({ cluster, pods }: DockerLab): Promise<void> {
  await cluster.mustKubectl(
    ["delete", "pods", "--all", "--grace-period=1", `--namespace=${pods.namespace}`, "--timeout=120s"],
    { timeoutMs: 150_000 },
  );
}
