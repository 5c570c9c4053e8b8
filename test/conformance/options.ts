import { type Guest, isGuest } from "../matrix.ts";

/** Providers of whole runs; over SSH the runtime is containerd. */
export const wholes = ["cri", "docker", "ssh"] as const;
export type Whole = (typeof wholes)[number];
/** Providers of runs of a part: a guest takes ten times as long. Over SSH containerd, or a Docker Engine that starts privileged containers. */
export const guests = ["ssh-guest", "ssh-docker-guest"] as const satisfies readonly Guest[];
/** Providers of runs; with `guest` the agent, and the suite, are in a guest themselves, beside its containerd. */
export const providers = [...wholes, ...guests, "guest"] as const;
export type Provider = (typeof providers)[number];
/** Providers with which the agent is on this machine. */
export type Outside = Exclude<Provider, "guest">;

/** By which provider's means what pods run on is brought up. */
export function targetWith(provider: Provider): Outside {
  return provider === "guest" ? "ssh-guest" : provider;
}

/** Pods' network on a node over SSH: by routes, or over the link on a machine that is no part of the cluster's network. */
export const networks = ["routed", "tunneled"] as const;
export type Network = (typeof networks)[number];

/** Whose node is tested. */
export const agents = ["graftlet", "kubelet"] as const;
export type AgentName = (typeof agents)[number];

/** What a run is asked for. */
export interface ConformanceOptions {
  readonly provider: Provider;
  readonly agent: AgentName;
  readonly network: Network;
  /** Which tests of the list, as `matching` has it; all unless given. */
  readonly focus: string | undefined;
  /** A file of tests in place of the list. */
  readonly list: string | undefined;
  /** The few tests that stand for the list. */
  readonly part: boolean;
  /** Of a score, what is run once more: nothing, what did not pass at its last attempt, or all that is chosen. */
  readonly again: "" | "1" | "all";
  /** The list as it stands, on graftlet: what the docs are about. */
  readonly whole: boolean;
}

/** Reads `PROVIDER` (cri unless given), `AGENT` (graftlet unless given), `NETWORK` (routed unless given), `FOCUS`, `LIST`, `PART` and
 *  `AGAIN`; empty counts as not given. @throws a sentence that names the variable and the remedy. */
export function readOptions(env: Readonly<Record<string, string | undefined>>): ConformanceOptions {
  const provider = oneOf("PROVIDER", providers, env.PROVIDER || "cri");
  const agent = agentWith(provider, env.AGENT || "graftlet");
  const network = oneOf("NETWORK", networks, env.NETWORK || "routed");
  if (network === "tunneled" && provider !== "ssh")
    throw new Error(
      `NETWORK is tunneled, which a node over SSH alone can be: give PROVIDER=ssh in place of ${provider}`,
    );
  if (network === "tunneled" && env.SCORE)
    throw new Error("NETWORK is tunneled, and a score is of routed nodes: leave out SCORE, or NETWORK");
  const focus = env.FOCUS || undefined;
  const part = oneOf("PART", ["", "1"], env.PART ?? "") === "1";
  const again = oneOf("AGAIN", ["", "1", "all"], env.AGAIN ?? "");
  const list = env.LIST || undefined;
  const all = focus === undefined && list === undefined && !part;
  const whole = agent === "graftlet" && network === "routed" && !isGuest(targetWith(provider)) && all;
  return { provider, agent, network, focus, list, part, again, whole };
}

function agentWith(provider: Provider, given: string): AgentName {
  const agent = oneOf("AGENT", agents, given);
  if (agent === "kubelet" && provider !== "cri" && provider !== "guest")
    throw new Error(`AGENT is kubelet, which speaks CRI alone: leave out PROVIDER=${provider}`);
  return agent;
}

function oneOf<T extends string>(variable: string, known: readonly T[], given: string): T {
  const found = known.find((each) => each === given);
  if (found === undefined)
    throw new Error(`${variable} is ${JSON.stringify(given)}: it is one of ${known.filter(Boolean).join(", ")}`);
  return found;
}
