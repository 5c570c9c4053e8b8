import type { ApiClient } from "../api/client.ts";
import { createBackoff } from "../lib/backoff.ts";
import { hasCode, messageOf, ignoreCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { CertificateSigningRequest } from "../objects.ts";
import { requestedSubject, canonicalAddress } from "./requested.ts";
import { retryUntilDone } from "../lib/retry.ts";

/** Approves a valid request, and logs the reason if it is invalid; stops when the signal aborts, or when the request has been changed.
 *  Never rejects. */
export type Approve = (request: CertificateSigningRequest, signal: AbortSignal) => Promise<void>;

export interface ApproverDeps extends ClockAndLog {
  /** API with permission to update certificatesigningrequests/approval for the signer: a Pod's service account. */
  readonly client: ApiClient;
  readonly nodeName: string;
  /** Signer of the node's serving certificates. */
  readonly signer: string;
  /** The node's current addresses. */
  readonly addresses: (signal: AbortSignal) => Promise<readonly string[]>;
}

const group = "system:nodes";
/** Usages that the signer allows. */
const allowedUsages = ["digital signature,server auth", "digital signature,key encipherment,server auth"];

/** Retry interval, milliseconds: the API server learns of a new policy or permission within a moment. */
const retryBackoff = { initialMs: 500, maxMs: 30_000 };

/** Reason not to approve a request; undefined for a request by that node for its own kubelet API. Pure.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers */
export function rejectionReason(
  { spec }: CertificateSigningRequest,
  {
    nodeName,
    signer,
    addresses,
  }: Pick<ApproverDeps, "nodeName" | "signer"> & { readonly addresses: readonly string[] },
): string | undefined {
  const { signerName, username = "", groups = [], usages = [], request } = spec;
  const user = `system:node:${nodeName}`;
  if (signerName !== signer) return `it is for the signer ${signerName}, not ${signer}`;
  if (username !== user) return `it was requested by ${JSON.stringify(username)}, not by ${user}`;
  if (!groups.includes(group)) return `${user} is not in the group ${group}`;
  if (!allowedUsages.includes(usages.toSorted().join()))
    return `its usages are not those of a serving certificate: ${usages.join(", ")}`;
  try {
    const { commonName, organization, names } = requestedSubject(Buffer.from(request, "base64").toString("latin1"));
    if (commonName !== user || organization !== group)
      return `it is for O=${JSON.stringify(organization)}, CN=${JSON.stringify(commonName)}`;
    const own = new Set([nodeName, ...addresses.map(canonicalAddress)]);
    const strange = names.filter((name) => !own.has(name));
    if (strange.length > 0)
      return `it contains ${JSON.stringify(strange)}, but only ${[...own].join(", ")} ${own.size > 1 ? "belong" : "belongs"} to the node`;
    return names.length === 0 ? "it contains neither the node's name nor an address" : undefined;
  } catch (error) {
    if (hasCode(error, "invalid_argument")) return messageOf(error);
    throw error;
  }
}

/** Approves one node's requests for the kubelet API's certificate. Invalid requests are left to other approvers: if denied, they would
 *  only be repeated. */
export function createApprover({ client, nodeName, signer, addresses, clock, log }: ApproverDeps): Approve {
  const attempt = async (request: CertificateSigningRequest, signal: AbortSignal): Promise<void> => {
    const { name } = request.metadata;
    const why = rejectionReason(request, { nodeName, signer, addresses: await addresses(signal) });
    if (why !== undefined) {
      log.warn(
        { request: name, why },
        `certificate request not approved; if it is valid, run: kubectl certificate approve ${name}`,
      );
      return;
    }
    const path = `/apis/certificates.k8s.io/v1/certificatesigningrequests/${encodeURIComponent(name)}/approval`;
    await client.update(path, approved(request), { signal });
    log.info({ request: name }, "certificate approved");
  };
  return async (request, signal) => {
    const { name } = request.metadata;
    const backoff = createBackoff({ clock, ...retryBackoff });
    const delayMs = () => backoff.next(name) * clock.jitter(1, 1.2);
    const message = "cannot approve certificate request; retrying";
    await retryUntilDone(
      { message, fields: { request: name }, delayMs, clock, log },
      () => ignoreCode(attempt(request, signal), "conflict", "not_found"),
      signal,
    );
  };
}

function approved(request: CertificateSigningRequest): CertificateSigningRequest {
  const condition = {
    type: "Approved",
    status: "True",
    reason: "GraftletApprove",
    message: "Requested by the node for names and addresses that graftlet knows to be its own.",
  };
  return { ...request, status: { ...request.status, conditions: [...(request.status?.conditions ?? []), condition] } };
}
