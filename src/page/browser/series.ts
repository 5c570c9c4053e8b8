import { type Metric, type Track, latest } from "./history.ts";
import { type Model, type Scope, trackOf } from "./model.ts";

export interface Line {
  readonly key: string;
  readonly label: string;
  readonly track: Track;
}

/** Maximum number of lines per plot: the number of colours. */
export const mostLines = 8;

/** Lines of a plot: all nodes, a node with its pods, or a pod's containers; if there are too many, those with the largest current value.
 *  Pure. */
export function linesOf(model: Model, scope: Scope, metric: Metric): readonly Line[] {
  if (scope.pod !== undefined) return podLines(model, scope.pod, metric);
  if (scope.node === undefined)
    return largest(
      model.nodes.map((name) => lineAt(model, trackOf.node(name), name)),
      metric,
      mostLines,
    );
  const pods = (model.pods.get(scope.node) ?? []).map(({ uid, name }) => lineAt(model, trackOf.pod(uid), name));
  const own = largest([lineAt(model, trackOf.node(scope.node), "whole node")], metric, 1);
  return [...own, ...largest(pods, metric, mostLines - 1)];
}

function podLines(model: Model, uid: string, metric: Metric): readonly Line[] {
  const prefix = trackOf.container(uid, "");
  const containers = [...model.tracks.keys()]
    .filter((key) => key.startsWith(prefix))
    .map((key) => lineAt(model, key, key.slice(prefix.length)));
  const own = largest(containers, metric, mostLines - 1);
  const whole = largest([lineAt(model, trackOf.pod(uid), "whole pod")], metric, 1);
  return own.length === 1 && metric !== "disk" ? own : [...whole, ...own];
}

function lineAt(model: Model, key: string, label: string): Line | undefined {
  const track = model.tracks.get(key);
  return track && { key, label, track };
}

function largest(lines: readonly (Line | undefined)[], metric: Metric, most: number): readonly Line[] {
  return lines
    .filter((line) => line !== undefined)
    .filter(({ track }) => track.values[metric].some((value) => value !== undefined))
    .toSorted((one, other) => (latest(other.track, metric) ?? 0) - (latest(one.track, metric) ?? 0))
    .slice(0, most);
}

/** Samples of different nodes are aligned to multiples of this, milliseconds. */
const stepMs = 5_000;

/** Converts lines to columns of a plot: times in seconds, then one column per line; null without a sample. Pure. */
export function columnsOf(lines: readonly { readonly track: Track; readonly metric: Metric }[]): (number | null)[][] {
  const slot = (at: number) => Math.round(at / stepMs) * stepMs;
  const times = [...new Set(lines.flatMap(({ track }) => track.at.map(slot)))].toSorted((one, other) => one - other);
  const place = new Map(times.map((time, index) => [time, index]));
  const columns = lines.map(({ track, metric }) => {
    const column: (number | null)[] = times.map(() => null);
    for (const [index, at] of track.at.entries())
      column[place.get(slot(at)) ?? 0] = track.values[metric][index] ?? null;
    return column;
  });
  return [times.map((time) => time / 1000), ...columns];
}
