import type { Verdict } from "./conditions.ts";

/** Limits for the roll-out of a pool's template. */
export interface Disruption {
  /** Maximum number of restarted nodes that are not Ready again yet: a number, or a percentage of the active ones, rounded down; at least
   *  one. By default 25%, as in a Deployment. */
  readonly maxUnavailable?: number | string;
  /** The roll-out pauses when this many restarted nodes have failed to become Ready; 1 by default. */
  readonly pauseOnFailures?: number;
}

/** The running node of a member. */
export interface RunningNode {
  /** The template that it was started with. */
  readonly template: string;
  readonly isReady: boolean;
}

/** A member whose machine should be a node. */
export interface RollOutMember {
  readonly name: string;
  /** Undefined while its node is stopped, or cannot start. */
  readonly node: RunningNode | undefined;
}

/** The template to roll out, and the nodes to roll it out to. */
export interface RollOutInput {
  readonly template: string;
  readonly disruption: Disruption;
  readonly members: readonly RollOutMember[];
}

/** Result of a look at the nodes. */
export interface RollOutProgress {
  /** Names of the members that were given a turn just now. */
  readonly woken: readonly string[];
  /** Names of the members that have a turn and have not restarted yet. */
  readonly restarting: readonly string[];
  /** Number of members that run with the template. */
  readonly updated: number;
  /** True while members have turns. `advance` must then be called again, because their time limits may pass without any other change. */
  readonly isUnderWay: boolean;
  readonly verdict: Verdict;
}

/** A member's permission to restart. */
interface Turn {
  /** When it was given, milliseconds. */
  readonly since: number;
  /** Since when the restarted node has been Ready, milliseconds; undefined while it is not. */
  readySince: number | undefined;
  /** True once the restarted node has been Ready for long enough. A node that was not Ready before the restart ends its turn at once, because
   *  the restart makes nothing unavailable. */
  isOver: boolean;
}

const defaultMaxUnavailable = "25%";
/** How long a restarted node must stay Ready to end its turn, and how long after its turn began it counts as failed, milliseconds. */
const [minReadyMs, failureMs] = [10_000, 60_000];
/** Maximum number of members that a message names. */
const maxNamed = 10;

export type RollOut = ReturnType<typeof createRollOut>;

/** Creates the roll-out of one pool's template: ready nodes restart a few at a time, in the order of their names; nodes that are not Ready
 *  restart at once. A node that starts for any other reason starts with the current template. */
export function createRollOut() {
  let current: string | undefined;
  const turns = new Map<string, Turn>();
  const follow = ({ template, members }: RollOutInput, now: number): void => {
    if (template !== current) {
      current = template;
      turns.clear();
    }
    const names = new Set(members.map(({ name }) => name));
    for (const name of turns.keys()) if (!names.has(name)) turns.delete(name);
    for (const { name, node } of members) {
      const turn = turns.get(name);
      if (!turn) continue;
      turn.readySince = node?.template === template && node.isReady ? (turn.readySince ?? now) : undefined;
      if (turn.readySince !== undefined && now - turn.readySince >= minReadyMs) turn.isOver = true;
    }
  };
  return {
    /** Gives turns to as many members as may have one. @param now milliseconds. */
    advance(input: RollOutInput, now: number): RollOutProgress {
      follow(input, now);
      const { template, members, disruption } = input;
      const running = members.flatMap(({ name, node }) => (node ? [{ name, ...node }] : []));
      const outdated = running.filter((node) => node.template !== template);
      const busy = [...turns].filter(([, { isOver }]) => !isOver);
      const failed = busy.filter(([, { since }]) => now - since >= failureMs).map(([name]) => name);
      const waiting = outdated.filter(({ name }) => !turns.has(name));
      const isPaused = waiting.length > 0 && failed.length >= (disruption.pauseOnFailures ?? 1);
      const room = Math.max(0, allowedUnavailable(disruption, members.length) - busy.length);
      const ready = waiting.filter(({ isReady }) => isReady).toSorted((one, other) => (one.name < other.name ? -1 : 1));
      const next = isPaused ? [] : [...ready.slice(0, room), ...waiting.filter(({ isReady }) => !isReady)];
      for (const { name, isReady } of next) turns.set(name, { since: now, readySince: undefined, isOver: !isReady });
      return {
        woken: next.map(({ name }) => name),
        restarting: outdated.filter(({ name }) => turns.has(name)).map(({ name }) => name),
        updated: running.length - outdated.length,
        isUnderWay: turns.values().some(({ isOver }) => !isOver),
        verdict: verdictOf(running.length, { outdated: outdated.length, busy: busy.length, failed, isPaused }),
      };
    },
  };
}

interface RollOutState {
  readonly outdated: number;
  readonly busy: number;
  readonly failed: readonly string[];
  readonly isPaused: boolean;
}

function verdictOf(all: number, { outdated, busy, failed, isPaused }: RollOutState): Verdict {
  if (outdated === 0 && busy === 0)
    return { status: "True", reason: "Complete", message: "all nodes run with the template" };
  const named = [...failed.slice(0, maxNamed), ...(failed.length > maxNamed ? ["…"] : [])].join(", ");
  const progress = `${all - outdated} of ${all} nodes run with the template`;
  const message = named === "" ? progress : `${progress}; of these, not Ready: ${named}`;
  if (!isPaused) return { status: "False", reason: "Progressing", message };
  const remedy = "fix the template or these machines, or raise disruption.pauseOnFailures";
  return { status: "False", reason: "Paused", message: `${message}: ${remedy}` };
}

/** Number of members that may be unavailable. Percentages are exact, unlike those of eviction thresholds, which have the kubelet's single
 *  precision. @param all number of active members. */
export function allowedUnavailable({ maxUnavailable = defaultMaxUnavailable }: Disruption, all: number): number {
  const percentage = /^(\d+)%$/.exec(String(maxUnavailable))?.[1];
  const most = percentage === undefined ? Number(maxUnavailable) : Math.floor((all * Number(percentage)) / 100);
  return Math.max(1, Number.isNaN(most) ? 1 : most);
}
