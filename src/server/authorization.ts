import { hasCode, messageOf } from "../lib/errors.ts";
import type { Authorizer, User } from "./ports.ts";
import { subresourcesOf } from "./routes.ts";

const verbs: Readonly<Record<string, string>> = {
  GET: "get",
  POST: "create",
  PUT: "update",
  PATCH: "patch",
  DELETE: "delete",
};

/** The status of a verdict that was not found out, since too many ask at once. */
export const tooManyRequests = 429;

export type Verdict =
  | { readonly is: "allowed" }
  | { readonly is: "refused"; readonly status: number; readonly text: string; readonly why?: string };

export interface Asked {
  readonly method: string;
  /** Of the path, decoded. */
  readonly segments: readonly string[];
}

/** Whether a user may do what a request asks, with the kubelet's answer when not: 403 when no subresource is allowed, 429
 *  when too many ask at once, 500 when that cannot be found out.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/#kubelet-authorization */
export async function authorize(
  authorizer: Authorizer,
  user: User,
  asked: Asked,
  signal: AbortSignal,
): Promise<Verdict> {
  const verb = verbs[asked.method] ?? "";
  const path = `/${asked.segments.join("/")}`;
  const subresources = subresourcesOf(asked.segments);
  const about = `user=${user.name}, verb=${verb}, resource=nodes`;
  for (const subresource of subresources) {
    try {
      if (await authorizer.allowed(user, verb, subresource, path, signal)) return { is: "allowed" };
    } catch (error) {
      if (hasCode(error, "resource_exhausted"))
        return { is: "refused", status: tooManyRequests, text: "", why: messageOf(error) };
      return {
        is: "refused",
        status: 500,
        text: `Authorization error (${about}, subresource=${subresource})`,
        why: messageOf(error),
      };
    }
  }
  return { is: "refused", status: 403, text: `Forbidden (${about}, subresource(s)=[${subresources.join(" ")}])\n` };
}
