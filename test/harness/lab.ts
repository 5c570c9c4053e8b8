import { type Agent, type AgentOptions, startGraftlet } from "./agent.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { openPods, type Pods } from "./pods.ts";
import type { ProviderName } from "./runtime-daemon.ts";

/** A cluster whose one node graftlet runs, and the pods of its default namespace. */
export interface Lab extends AsyncDisposable {
  readonly cluster: Cluster;
  readonly agent: Agent;
  readonly pods: Pods;
}

/** Starts all of it under a name of its own; throws, with everything taken down again, when the node does not become Ready. */
export async function startLab(
  name: string,
  { provider, ...options }: AgentOptions & { readonly provider?: ProviderName } = {},
): Promise<Lab> {
  await using stack = new AsyncDisposableStack();
  const cluster = stack.use(await startCluster({ name, ...(provider && { provider }) }));
  const agent = stack.use(await startGraftlet(cluster, options));
  const pods = stack.use(await openPods(cluster));
  const whole = stack.move();
  return { cluster, agent, pods, [Symbol.asyncDispose]: () => whole.disposeAsync() };
}
