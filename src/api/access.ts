import type * as k8s from "@kubernetes/client-node";
import type { Clock } from "../lib/clock.ts";
import { CodedError, ignoreNotFound } from "../lib/errors.ts";
import type { ConfigMap, Wire } from "../objects.ts";
import type { ApiClient } from "./client.ts";

/** Identity of a caller. */
export interface User {
  readonly name: string;
  readonly uid?: string;
  readonly groups: readonly string[];
  readonly extra?: Readonly<Record<string, readonly string[]>>;
}

/** Authenticates and authorizes callers through the API server. Caches nothing. */
export type AccessReview = ReturnType<typeof createAccessReview>;

/** Metrics of TokenReview and SubjectAccessReview requests. */
export interface ReviewMeasures {
  /** @param code HTTP status, or `<error>` without a response. */
  tokenReviewed(code: string, ms: number): void;
  accessReviewed(code: string, ms: number): void;
}

const reviewTimeoutMs = 10_000;

/** @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/ */
export function createAccessReview(deps: {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly nodeName: string;
  readonly measures: ReviewMeasures;
}) {
  const { client, clock, nodeName, measures } = deps;
  return {
    /** Returns the user of a bearer token; undefined for an invalid token. @throws CodedError if the review fails. */
    async byToken(token: string, signal: AbortSignal): Promise<User | undefined> {
      const body = { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec: { token } };
      const review = await client.create<Wire<k8s.V1TokenReview>>("/apis/authentication.k8s.io/v1/tokenreviews", body, {
        signal: clock.within(reviewTimeoutMs, signal),
        answered: (code, ms) => measures.tokenReviewed(code, ms),
      });
      const user = review.status?.authenticated ? review.status.user : undefined;
      if (!user?.username) return undefined;
      return {
        name: user.username,
        groups: user.groups ?? [],
        ...(user.uid && { uid: user.uid }),
        ...(user.extra && { extra: user.extra }),
      };
    },
    /** True if the user may perform `verb` on a subresource of this node. @param verb get, create, update, patch, delete; empty for other
     *  HTTP methods. @param subresource such as `proxy`. @param path of the request. @throws CodedError if the review fails. */
    async allowed(user: User, verb: string, subresource: string, _path: string, signal: AbortSignal): Promise<boolean> {
      const resourceAttributes = { verb, group: "", version: "v1", resource: "nodes", name: nodeName, subresource };
      const spec = { user: user.name, uid: user.uid, groups: user.groups, extra: user.extra, resourceAttributes };
      const body = { apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview", spec };
      const path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
      const review = await client.create<Wire<k8s.V1SubjectAccessReview>>(path, body, {
        signal: clock.within(reviewTimeoutMs, signal),
        answered: (code, ms) => measures.accessReviewed(code, ms),
      });
      if (!review.status) throw new CodedError("unknown", "the access review has no status");
      return review.status.allowed && !review.status.denied;
    },
  };
}

/** Reads the cluster's client CA in PEM, as the API server publishes it; undefined if it is not published or cannot be read.
 *  @see https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/ */
export async function readClusterClientCA(
  client: Pick<ApiClient, "get">,
  signal: AbortSignal,
): Promise<string | undefined> {
  const path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
  const map = await ignoreNotFound(client.get<ConfigMap>(path, { signal }));
  return map?.data?.["client-ca-file"] || undefined;
}
