import { parseAllDocuments } from "yaml";
import type { Deed } from "../../harness/audit.ts";

/** One thing that an account may do: a verb on a resource of a group, of these names where the rule says names. */
export interface Right {
  readonly account: string;
  readonly verb: string;
  readonly group: string;
  /** `pods` or `pods/status`. */
  readonly resource: string;
  readonly names?: readonly string[];
}

interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
  readonly resourceNames?: readonly string[];
}

interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly rules?: readonly Rule[];
  readonly roleRef?: { readonly kind: string; readonly name: string };
  readonly subjects?: readonly { readonly kind: string; readonly name: string; readonly namespace?: string }[];
}

/** All that the service accounts of a release may do by its own roles. @param manifests YAML, as `helm get manifest` has it. */
export function rightsIn(manifests: string): readonly Right[] {
  const all = parseAllDocuments(manifests).map((document) => document.toJS() as Manifest | null);
  const objects = all.filter((object) => object !== null);
  return objects.flatMap(({ kind, metadata, rules = [] }) => {
    const bound = objects.filter(
      (object) =>
        object.roleRef?.kind === kind &&
        object.roleRef.name === metadata.name &&
        (kind === "ClusterRole" || object.metadata.namespace === metadata.namespace),
    );
    const accounts = bound
      .flatMap(({ subjects = [] }) => subjects)
      .filter((subject) => subject.kind === "ServiceAccount")
      .map((subject) => `system:serviceaccount:${subject.namespace}:${subject.name}`);
    return accounts.flatMap((account) => rules.flatMap((rule) => rightsOf(account, rule)));
  });
}

function rightsOf(account: string, { apiGroups, resources, verbs, resourceNames: names }: Rule): Right[] {
  return apiGroups.flatMap((group) =>
    resources.flatMap((resource) => verbs.map((verb) => ({ account, verb, group, resource, ...(names && { names }) }))),
  );
}

/** The rights that no deed has used. */
export function unused(rights: readonly Right[], deeds: readonly Deed[]): readonly Right[] {
  return rights.filter((right) => !deeds.some((deed) => uses(deed, right)));
}

function uses({ verb, user, objectRef = {}, annotations }: Deed, right: Right): boolean {
  const { resource, subresource, apiGroup = "", name } = objectRef;
  return (
    user.username === right.account &&
    verb === right.verb &&
    apiGroup === right.group &&
    (subresource ? `${resource}/${subresource}` : resource) === right.resource &&
    (right.names === undefined || right.names.includes(name ?? "")) &&
    annotations?.["authorization.k8s.io/decision"] === "allow"
  );
}
