import { setTimeout as sleep } from "node:timers/promises";
import type { Node, NodeCondition, Pod } from "../../../src/objects.ts";
import type { Agent } from "../../harness/agent.ts";
import { waitFor } from "../../harness/wait.ts";
import { countPodWrites } from "../api-writes.ts";
import type { BenchLab } from "../bench-lab.ts";
import { idleCount } from "./idle.ts";

/** After a restart the agent is watched for so long, milliseconds: it has nothing to say of any pod. */
const watchedMs = 20_000;
/** Between two questions to an agent that is about to answer, milliseconds. */
const everyMs = 50;

/** Ends an agent and starts it again under a node full of pods. @param start starts it and waits for nothing.
 *  @returns the agent that runs now. */
export async function restart(
  lab: BenchLab,
  { who, round, agent }: { readonly who: string; readonly round: number; readonly agent: Agent },
  start: () => Promise<Agent>,
): Promise<Agent> {
  const { cluster, ledger } = lab;
  const written = countPodWrites(cluster);
  const { next, tookMs } = await untilBack(lab, agent, start);
  ledger.note("restart", who, round, tookMs / 1000);
  await sleep(watchedMs);
  ledger.note("restart writes", who, round, written("idle-").pods);
  return next;
}

/** Ends an agent and starts it again. @returns the agent that runs now, and the time from the signal on until the API server has its word
 *  that the node is Ready and its own API lists all pods. @throws if the agent does not end by itself. */
export async function untilBack(
  { cluster, pods }: Pick<BenchLab, "cluster" | "pods">,
  agent: Agent,
  start: () => Promise<Agent>,
): Promise<{ readonly next: Agent; readonly tookMs: number }> {
  const node = `/api/v1/nodes/${cluster.nodeName}`;
  const heard = readyOf(await pods.api.get<Node>(node))?.lastHeartbeatTime;
  // Heartbeats are told in whole seconds: the next is another one.
  await sleep(1_100);
  const asked = performance.now();
  if (!(await agent.stop())) throw new Error("the agent did not end by itself");
  const next = await start();
  const isSaidReady = async () => {
    const now = readyOf(await pods.api.get<Node>(node));
    return now?.status === "True" && now.lastHeartbeatTime !== heard;
  };
  await waitFor("the agent's word that its node is Ready", isSaidReady, { timeoutMs: 180_000, everyMs });
  const ready = performance.now();
  const hasAll = async () => {
    const { items } = await pods.api.get<{ items: readonly Pod[] }>(`${node}/proxy/pods`);
    return items.filter(({ metadata }) => metadata.name.startsWith("idle-")).length === idleCount;
  };
  await waitFor("the agent to know all pods", hasAll, { timeoutMs: 180_000, everyMs });
  return { next, tookMs: Math.max(ready, performance.now()) - asked };
}

function readyOf({ status }: Node): NodeCondition | undefined {
  return status?.conditions?.find(({ type }) => type === "Ready");
}
