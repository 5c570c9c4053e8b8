import { type Agent, type AgentOptions, startGraftlet, startKubelet } from "../harness/agent.ts";
import type { Cluster } from "../harness/cluster.ts";

/** An agent that takes turns with others on one node. */
export interface Contender {
  /** Its column in the table. */
  readonly who: string;
  start(cluster: Cluster, options?: AgentOptions): Promise<Agent>;
}

/** The same settings for all: a log of a GiB is kept whole. */
const config = { containerLogMaxSize: "4Gi" };

export const kubelet: Contender = {
  who: "kubelet",
  start: (cluster, options) => startKubelet(cluster, { config, ...options }),
};

/** The built file, as it is shipped. */
export const graftlet: Contender = {
  who: "graftlet",
  start: (cluster, options) => startGraftlet(cluster, { built: true, config, ...options }),
};
