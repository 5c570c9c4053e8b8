import { readFileSync } from "node:fs";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { AccessFile } from "./kubeconfig.ts";
import { claimsOf } from "./token-signers.ts";

/** Mount path of a Pod's service account. */
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount";

/** A Pod's service account: access to the API server, and its namespace. */
export interface ServiceAccountAccess extends AccessFile {
  /** @throws CodedError if the Pod has no service account token. */
  namespace(): string;
  /** Returns the account's name and UID according to its token; undefined if the token does not contain them. */
  account(): TokenSubject | undefined;
  /** Returns the name and UID of the Pod that its token is bound to; undefined if it is not bound to a Pod. */
  pod(): TokenSubject | undefined;
}

/** Name and UID of an object, according to a token. */
export interface TokenSubject {
  readonly name: string;
  readonly uid: string;
}

/** Returns the access of graftlet's Pod to the API server: the service account's token, which is read again when it has been
 *  renewed, and the cluster's CA.
 *  @param env of the process.
 *  @returns undefined outside a Pod.
 *  @see https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/ */
export function serviceAccount(
  env: Readonly<Record<string, string | undefined>>,
  dir = accountDir,
): ServiceAccountAccess | undefined {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = "443" } = env;
  if (!host) return undefined;
  const server = `https://${host.includes(":") ? `[${host}]` : host}:${port}`;
  return {
    name: "the Pod's service account",
    path: undefined,
    namespace() {
      try {
        return readFileSync(`${dir}/namespace`, "utf8").trim();
      } catch (cause) {
        throw new CodedError(
          "failed_precondition",
          `the Pod's service account is not mounted (${messageOf(cause)}): leave automountServiceAccountToken on`,
          { cause },
        );
      }
    },
    account: () => subjectOf(`${dir}/token`, "serviceaccount"),
    pod: () => subjectOf(`${dir}/token`, "pod"),
    read() {
      if (!URL.canParse(server))
        throw new CodedError(
          "invalid_argument",
          `KUBERNETES_SERVICE_HOST ${JSON.stringify(host)} with KUBERNETES_SERVICE_PORT ${JSON.stringify(port)} is not an address: set --kubeconfig instead`,
        );
      return {
        cluster: { name: "in-cluster", server, caFile: `${dir}/ca.crt`, skipTLSVerify: false },
        user: { name: "service-account" },
        tokenFile: `${dir}/token`,
      };
    },
  };
}

/** Reads the private claims of a service account token, which it does not verify.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#schema-for-service-account-private-claims */
function subjectOf(tokenFile: string, kind: keyof SubjectClaims): TokenSubject | undefined {
  let token: string;
  try {
    token = readFileSync(tokenFile, "utf8");
  } catch {
    return undefined;
  }
  const claims: TokenClaims = claimsOf(token.split(".")[1] ?? "") ?? {};
  const { name, uid } = claims["kubernetes.io"]?.[kind] ?? {};
  return typeof name === "string" && typeof uid === "string" ? { name, uid } : undefined;
}

interface TokenClaims {
  readonly "kubernetes.io"?: SubjectClaims;
}

interface SubjectClaims {
  readonly serviceaccount?: { readonly name?: unknown; readonly uid?: unknown };
  readonly pod?: { readonly name?: unknown; readonly uid?: unknown };
}
