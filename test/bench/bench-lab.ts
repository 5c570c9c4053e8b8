import type { Agent } from "../harness/agent.ts";
import type { Cluster } from "../harness/cluster.ts";
import type { Pods } from "../harness/pods.ts";
import type { Ledger } from "./ledger.ts";

/** Where things are measured. */
export interface BenchLab {
  readonly cluster: Cluster;
  /** The pods of its default namespace, watched at the API server. */
  readonly pods: Pods;
  readonly ledger: Ledger;
  /** Progress in sentences. */
  readonly say: (line: string) => void;
}

/** An agent's turn: in each round each of them has one. */
export interface Turn {
  /** The column of the table. */
  readonly who: string;
  /** From 1. */
  readonly round: number;
  readonly agent: Agent;
}

/** Something that is done with each agent, and measured. */
export type Scenario = (lab: BenchLab, turn: Turn) => Promise<void>;

/** The beginning of names that no other turn has. */
export function namesOf(scenario: string, { who, round }: Pick<Turn, "who" | "round">): string {
  return `${scenario}-${who.replaceAll(/[^a-z0-9]+/g, "-")}-${round}`;
}
