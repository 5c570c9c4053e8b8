import { type Agent, type AgentOptions, type GraftletOptions, startGraftlet } from "./agent.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { openPods, type Pods } from "./pods.ts";
import type { ProviderName } from "./runtime-daemon.ts";

/** A cluster whose one node graftlet runs, and the pods of its default namespace. */
export interface Lab extends AsyncDisposable {
  readonly cluster: Cluster;
  readonly agent: Agent;
  readonly pods: Pods;
}

interface Shared {
  readonly lab: Promise<Lab>;
  /** Files that hold it. */
  holders: number;
}

/** Labs of this process by name. */
const labs = new Map<string, Shared>();

/** Starts all of it under a name of its own; throws, with everything taken down again, when the node does not become Ready. Test files
 *  that run in one process and give the same name have one lab, which ends with the last of them: their options are the same. */
export async function startLab(
  name: string,
  options: AgentOptions & GraftletOptions & { readonly provider?: ProviderName } = {},
): Promise<Lab> {
  const shared = labs.get(name) ?? { lab: startOwnLab(name, options), holders: 0 };
  labs.set(name, shared);
  shared.holders += 1;
  const lab = await shared.lab;
  return {
    ...lab,
    async [Symbol.asyncDispose]() {
      shared.holders -= 1;
      if (shared.holders > 0) return;
      labs.delete(name);
      await lab[Symbol.asyncDispose]();
    },
  };
}

async function startOwnLab(
  name: string,
  { provider, ...options }: AgentOptions & GraftletOptions & { readonly provider?: ProviderName },
): Promise<Lab> {
  await using stack = new AsyncDisposableStack();
  const cluster = stack.use(await startCluster({ name, ...(provider && { provider }) }));
  const agent = stack.use(await startGraftlet(cluster, options));
  const pods = stack.use(await openPods(cluster));
  const whole = stack.move();
  return { cluster, agent, pods, [Symbol.asyncDispose]: () => whole.disposeAsync() };
}
