/** The kinds of runs, each with the scenarios that it has. */
export const kinds = {
  cri: ["start", "delete", "claims", "burst", "kill", "ready", "exec", "streams", "probes", "idle", "restart"],
  docker: ["start", "kill", "idle", "streams"],
  ssh: ["start", "kill", "streams"],
  fleet: ["share"],
  nodes: ["idle"],
} as const;

export type Kind = keyof typeof kinds;

/** What a run is asked for. */
export interface BenchOptions {
  readonly kind: Kind;
  /** The scenarios to run, in their order. */
  readonly scenarios: readonly string[];
  /** The part of the docs' page that the run writes, such as `bench cri`; undefined if its result does not stand in the docs. */
  readonly part: string | undefined;
  /** Nodes in one process, for the kind of that name; machines that replicas share, for the kind fleet. */
  readonly nodes: number;
}

/** How many nodes, and machines of a fleet, the docs have figures for; the second number has a part of its own. */
const [documentedNodes, documentedMachines] = [
  [100, 1_000],
  [300, 1_000],
] as const;

/** Reads `PROVIDER` (cri unless given), `ONLY` (scenarios, with commas) and `NODES`; empty counts as not given.
 *  @throws a sentence that names the variable and the remedy. */
export function readOptions(env: Readonly<Record<string, string | undefined>>): BenchOptions {
  const provider = env.PROVIDER || "cri";
  const nodes = nodesOf(env.NODES) || (provider === "fleet" ? documentedMachines[0] : 0);
  if (nodes > 0 && env.PROVIDER && provider !== "fleet")
    throw new Error("NODES is about nodes in memory: leave out PROVIDER, or set it to fleet");
  const kind = nodes > 0 && provider !== "fleet" ? "nodes" : kindOf(provider);
  const all: readonly string[] = kinds[kind];
  const wanted = (env.ONLY ?? "").split(",").filter((name) => name !== "");
  const unknown = wanted.find((name) => !all.includes(name));
  if (unknown !== undefined)
    throw new Error(`ONLY names ${JSON.stringify(unknown)}: with ${kind} it is one or more of ${all.join(",")}`);
  const scenarios = all.filter((name) => wanted.length === 0 || wanted.includes(name));
  return { kind, scenarios, part: scenarios.length === all.length ? partOf(kind, nodes) : undefined, nodes };
}

function partOf(kind: Kind, nodes: number): string | undefined {
  const [usual, many] = kind === "fleet" ? documentedMachines : documentedNodes;
  if (nodes === many) return `bench ${kind} ${many}`;
  return nodes === 0 || nodes === usual ? `bench ${kind}` : undefined;
}

function nodesOf(text: string | undefined): number {
  if (!text) return 0;
  const nodes = Number(text);
  if (!Number.isInteger(nodes) || nodes < 1 || nodes > 1_000)
    throw new Error(`NODES is ${JSON.stringify(text)}: write a whole number from 1 to 1000`);
  return nodes;
}

function kindOf(provider: string): Kind {
  const known = ["cri", "docker", "ssh", "fleet"] as const;
  const kind = known.find((name) => name === provider);
  if (kind === undefined) throw new Error(`PROVIDER is ${JSON.stringify(provider)}: it is one of ${known.join(", ")}`);
  return kind;
}
