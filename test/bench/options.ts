/** The kinds of runs, each with the scenarios that it has. */
export const kinds = {
  cri: ["start", "delete", "claims", "burst", "kill", "ready", "exec", "streams", "probes", "idle", "restart"],
  docker: ["start", "kill", "idle", "streams"],
  ssh: ["start", "kill", "streams"],
  nodes: ["idle"],
} as const;

export type Kind = keyof typeof kinds;

/** What a run is asked for. */
export interface BenchOptions {
  readonly kind: Kind;
  /** The scenarios to run, in their order. */
  readonly scenarios: readonly string[];
  /** All of them: the run may stand in the docs. */
  readonly whole: boolean;
  /** Nodes in one process, for the kind of that name. */
  readonly nodes: number;
}

/** As many nodes as the docs tell of. */
const usualNodes = 100;

/** Reads `PROVIDER` (cri unless given), `ONLY` (scenarios, with commas) and `NODES`; empty counts as not given.
 *  @throws a sentence that names the variable and the remedy. */
export function readOptions(env: Readonly<Record<string, string | undefined>>): BenchOptions {
  const nodes = nodesOf(env.NODES);
  const provider = env.PROVIDER || "cri";
  if (nodes > 0 && env.PROVIDER) throw new Error("NODES is about nodes in memory: leave out PROVIDER");
  const kind = nodes > 0 ? "nodes" : kindOf(provider);
  const all: readonly string[] = kinds[kind];
  const wanted = (env.ONLY ?? "").split(",").filter((name) => name !== "");
  const unknown = wanted.find((name) => !all.includes(name));
  if (unknown !== undefined)
    throw new Error(`ONLY names ${JSON.stringify(unknown)}: with ${kind} it is one or more of ${all.join(",")}`);
  const scenarios = all.filter((name) => wanted.length === 0 || wanted.includes(name));
  const usual = nodes === 0 || nodes === usualNodes;
  return { kind, scenarios, whole: usual && scenarios.length === all.length, nodes };
}

function nodesOf(text: string | undefined): number {
  if (!text) return 0;
  const nodes = Number(text);
  if (!Number.isInteger(nodes) || nodes < 1 || nodes > 500)
    throw new Error(`NODES is ${JSON.stringify(text)}: write a whole number from 1 to 500`);
  return nodes;
}

function kindOf(provider: string): Kind {
  const known = ["cri", "docker", "ssh"] as const;
  const kind = known.find((name) => name === provider);
  if (kind === undefined) throw new Error(`PROVIDER is ${JSON.stringify(provider)}: it is one of ${known.join(", ")}`);
  return kind;
}
