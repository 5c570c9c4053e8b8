import type { V1LabelSelector, V1NodeSelectorRequirement, V1NodeSelectorTerm } from "@kubernetes/client-node";
import type { Node } from "../objects.ts";

/** True if a node satisfies all requirements of a term; a term without requirements matches nothing.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/ */
export function termMatches(
  { matchExpressions = [], matchFields = [] }: V1NodeSelectorTerm,
  { metadata }: Pick<Node, "metadata">,
): boolean {
  if (matchExpressions.length + matchFields.length === 0) return false;
  return (
    matchExpressions.every((requirement) => labelMatches(requirement, metadata.labels?.[requirement.key])) &&
    matchFields.every((requirement) => fieldMatches(requirement, metadata.name))
  );
}

/** True if labels satisfy a label selector; an empty selector matches everything. */
export function labelsMatch(
  { matchLabels = {}, matchExpressions = [] }: V1LabelSelector,
  labels: Readonly<Record<string, string>> = {},
): boolean {
  return (
    Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
    matchExpressions.every((requirement) => labelMatches(requirement, labels[requirement.key]))
  );
}

function labelMatches({ operator, values = [] }: V1NodeSelectorRequirement, label: string | undefined): boolean {
  switch (operator) {
    case "In":
      return label !== undefined && values.includes(label);
    case "NotIn":
      return label === undefined || !values.includes(label);
    case "Exists":
      return label !== undefined;
    case "DoesNotExist":
      return label === undefined;
    case "Gt":
      return compare(label, values, (a, b) => a > b);
    case "Lt":
      return compare(label, values, (a, b) => a < b);
    default:
      return false;
  }
}

function compare(
  label: string | undefined,
  [limit, ...more]: readonly string[],
  holds: (a: bigint, b: bigint) => boolean,
): boolean {
  const whole = /^[+-]?[0-9]+$/;
  if (label === undefined || limit === undefined || more.length > 0 || !whole.test(label) || !whole.test(limit))
    return false;
  return holds(BigInt(label), BigInt(limit));
}

/** The only supported node field is its name. */
function fieldMatches({ key, operator, values = [] }: V1NodeSelectorRequirement, name: string): boolean {
  const [value, ...more] = values;
  if (value === undefined || more.length > 0) return false;
  const field = key === "metadata.name" ? name : "";
  return operator === "In" ? field === value : operator === "NotIn" && field !== value;
}
