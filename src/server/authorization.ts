import { hasCode, messageOf } from "../lib/errors.ts";
import type { User } from "../api/access.ts";
import type { Authorizer } from "./ports.ts";
import { subresourcesOf, verbOf } from "./routes.ts";

/** Result when the limit of concurrent reviews is reached. */
export const tooManyRequests = {
  kind: "refused",
  status: 429,
  text: "Too many requests, please try again later.\n",
} as const;

export type AuthorizationResult =
  | { readonly kind: "allowed" }
  | { readonly kind: "refused"; readonly status: number; readonly text: string; readonly why?: string };

export interface RequestAttributes {
  readonly method: string;
  /** Segments of the path, decoded. */
  readonly segments: readonly string[];
}

/** Authorizes a user's request, with the kubelet's response if refused: 403 if no subresource is allowed, 429 at the limit of reviews,
 *  500 if the review fails.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/#kubelet-authorization */
export async function authorize(
  authorizer: Authorizer,
  user: User,
  attributes: RequestAttributes,
  signal: AbortSignal,
): Promise<AuthorizationResult> {
  const verb = verbOf(attributes.method, attributes.segments);
  const path = `/${attributes.segments.join("/")}`;
  const subresources = subresourcesOf(attributes.segments);
  const about = `user=${user.name}, verb=${verb}, resource=nodes`;
  for (const subresource of subresources) {
    try {
      if (await authorizer.allowed(user, verb, subresource, path, signal)) return { kind: "allowed" };
    } catch (error) {
      if (hasCode(error, "resource_exhausted")) return { ...tooManyRequests, why: messageOf(error) };
      return {
        kind: "refused",
        status: 500,
        text: `Authorization error (${about}, subresource=${subresource})`,
        why: messageOf(error),
      };
    }
  }
  return { kind: "refused", status: 403, text: `Forbidden (${about}, subresource(s)=[${subresources.join(" ")}])\n` };
}
