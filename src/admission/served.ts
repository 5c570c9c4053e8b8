import type { Served } from "../pipeline.ts";
import { fieldsOf } from "./decisions.ts";
import { podSpec } from "./pod-decisions.ts";

/** Knows which fields of a pod are not served. Each field of a pod spec is decided on in a table: a pod is never run with one
 *  of them ignored. @see https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ */
export function createServed(): Served {
  const judge = fieldsOf(podSpec);
  return { unserved: ({ spec }) => judge(spec, "spec") };
}
