import { isRecord } from "../lib/record.ts";
import type { PodCondition, PodStatus } from "../objects.ts";
import { isKubeletCondition, isOwnDisruption } from "../pod/conditions.ts";

/** Status fields written by the node; all others are left alone. */
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

/** Resource maps: a merge would keep removed keys, so the shown map is replaced. Without a shown map the API server would drop a
 *  replacement. As with the kubelet, what is shown stays if the pod has none. */
const amountFields = ["resources", "allocatedResources"] as const;

/** Lists that a strategic merge patch merges by address: removals must be explicit, and the order matters. */
const addressFields = ["hostIPs", "podIPs"] as const;

/** Returns the strategic merge patch of `status` from one status to another; undefined if none of the node's own fields differ.
 *  Container statuses have no merge key: the API server replaces their lists as a whole.
 *  @see https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/ */
export function statusPatch(shown: PodStatus, desired: PodStatus): Readonly<Record<string, unknown>> | undefined {
  const patch: Record<string, unknown> = {};
  for (const field of ownFields)
    if (!semanticallyEqual(shown[field], desired[field])) patch[field] = desired[field] ?? null;
  for (const field of amountFields) {
    const amounts = desired[field];
    if (amounts && !semanticallyEqual(shown[field], amounts))
      patch[field] = { ...(shown[field] && { $patch: "replace" }), ...amounts };
  }
  for (const field of addressFields) {
    const list = desired[field] ?? [];
    if (!semanticallyEqual(shown[field], list))
      patch[field] = list.length > 0 ? [{ $patch: "replace" }, ...list] : null;
  }
  const conditions = conditionPatches(shown.conditions ?? [], desired.conditions ?? []);
  if (conditions.length > 0) patch["conditions"] = conditions;
  return Object.keys(patch).length > 0 ? patch : undefined;
}

/** Returns patches of the conditions, which are merged by type; only the kubelet's own conditions are changed. */
function conditionPatches(shown: readonly PodCondition[], wanted: readonly PodCondition[]): readonly object[] {
  const own = wanted.filter((condition) => isKubeletCondition(condition.type) || isOwnDisruption(condition));
  const gone = shown.filter(({ type }) => isKubeletCondition(type) && !own.some((one) => one.type === type));
  const changed = own.flatMap((condition) => {
    const before = shown.find(({ type }) => type === condition.type);
    if (semanticallyEqual(before, condition)) return [];
    const dropped = Object.keys(before ?? {}).filter((key) => !(key in condition));
    return [{ ...Object.fromEntries(dropped.map((key) => [key, null])), ...condition }];
  });
  return [...changed, ...gone.map(({ type }) => ({ $patch: "delete", type }))];
}

/** Compares values as the API server does: absent, null and empty lists are equal, and so are an absent and an empty lastState. Does not
 *  copy, because every sync compares whole statuses. */
function semanticallyEqual(a: unknown, b: unknown): boolean {
  if (isEmpty(a) || isEmpty(b)) return isEmpty(a) && isEmpty(b);
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((item, at) => semanticallyEqual(item, b[at]));
  if (isRecord(a) && isRecord(b)) return sameFields(a, b);
  return Object.is(a, b);
}

type StatusFields = Readonly<Record<string, unknown>>;

function sameFields(a: StatusFields, b: StatusFields): boolean {
  const [keys, others] = [setFieldNames(a), setFieldNames(b)];
  return (
    keys.length === others.length && keys.every((key) => others.includes(key) && semanticallyEqual(a[key], b[key]))
  );
}

function setFieldNames(fields: StatusFields): readonly string[] {
  return Object.keys(fields).filter((key) => {
    const value = fields[key];
    return !isEmpty(value) && !(key === "lastState" && isRecord(value) && Object.keys(value).length === 0);
  });
}

function isEmpty(value: unknown): boolean {
  return value === null || value === undefined || (Array.isArray(value) && value.length === 0);
}
