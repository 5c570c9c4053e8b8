import { isRecord } from "../lib/record.ts";
import type { PodCondition, PodStatus } from "../objects.ts";
import { isKubeletCondition, isOwnDisruption } from "../pod/conditions.ts";

/** Fields of a pod's status that its node writes; all others are left alone. */
const ownFields = [
  "phase",
  "reason",
  "message",
  "hostIP",
  "podIP",
  "startTime",
  "qosClass",
  "observedGeneration",
  "containerStatuses",
  "initContainerStatuses",
  "ephemeralContainerStatuses",
] as const;

/** Amounts by name, of which a merge would keep those that are gone: what is shown is replaced. Where nothing is shown the API
 *  server would drop a replacement whole. What a kubelet shows of pods without amounts of their own stays as it is. */
const amountFields = ["resources", "allocatedResources"] as const;

/** Lists that a strategic merge joins by address: what is gone has to be said, and the order counts. */
const addressFields = ["hostIPs", "podIPs"] as const;

/** The strategic merge patch of `status` that turns one status into another, or undefined when nothing of the node's own differs.
 *  Container statuses have no merge key: the API server replaces their lists whole.
 *  @see https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/ */
export function statusPatch(shown: PodStatus, wanted: PodStatus): Readonly<Record<string, unknown>> | undefined {
  const patch: Record<string, unknown> = {};
  for (const field of ownFields) if (!same(shown[field], wanted[field])) patch[field] = wanted[field] ?? null;
  for (const field of amountFields) {
    const amounts = wanted[field];
    if (amounts && !same(shown[field], amounts))
      patch[field] = { ...(shown[field] && { $patch: "replace" }), ...amounts };
  }
  for (const field of addressFields) {
    const list = wanted[field] ?? [];
    if (!same(shown[field], list)) patch[field] = list.length > 0 ? [{ $patch: "replace" }, ...list] : null;
  }
  const conditions = conditionPatches(shown.conditions ?? [], wanted.conditions ?? []);
  if (conditions.length > 0) patch["conditions"] = conditions;
  return Object.keys(patch).length > 0 ? patch : undefined;
}

/** Conditions are merged by type; only what the kubelet says is touched. */
function conditionPatches(shown: readonly PodCondition[], wanted: readonly PodCondition[]): readonly object[] {
  const own = wanted.filter((condition) => isKubeletCondition(condition.type) || isOwnDisruption(condition));
  const gone = shown.filter(({ type }) => isKubeletCondition(type) && !own.some((one) => one.type === type));
  const changed = own.flatMap((condition) => {
    const before = shown.find(({ type }) => type === condition.type);
    if (same(before, condition)) return [];
    const dropped = Object.keys(before ?? {}).filter((key) => !(key in condition));
    return [{ ...Object.fromEntries(dropped.map((key) => [key, null])), ...condition }];
  });
  return [...changed, ...gone.map(({ type }) => ({ $patch: "delete", type }))];
}

/** Equality as the API means it: absent, null and an empty list are one, and so are no last state and one without fields. Nothing
 *  is copied: each pass over a pod compares all of its status. */
function same(a: unknown, b: unknown): boolean {
  if (isNothing(a) || isNothing(b)) return isNothing(a) && isNothing(b);
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((item, at) => same(item, b[at]));
  if (isRecord(a) && isRecord(b)) return sameFields(a, b);
  return Object.is(a, b);
}

type Fields = Readonly<Record<string, unknown>>;

function sameFields(a: Fields, b: Fields): boolean {
  const [keys, others] = [keysOf(a), keysOf(b)];
  return keys.length === others.length && keys.every((key) => others.includes(key) && same(a[key], b[key]));
}

/** Names of the fields that say something. */
function keysOf(fields: Fields): readonly string[] {
  return Object.keys(fields).filter((key) => {
    const value = fields[key];
    return !isNothing(value) && !(key === "lastState" && isRecord(value) && Object.keys(value).length === 0);
  });
}

function isNothing(value: unknown): boolean {
  return value === null || value === undefined || (Array.isArray(value) && value.length === 0);
}
