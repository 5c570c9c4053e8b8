import type { ApiClient } from "../api/client.ts";
import { createReflector } from "../api/reflector.ts";
import { CodedError, hasCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { LatestSlot } from "../lib/latest-slot.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { CertificateSigningRequest } from "../objects.ts";
import type { Approve } from "./approver.ts";
import { type Subject, requestName, signingRequest } from "./signing-request.ts";

/** What a certificate is for. */
export type CertificateUsage = "client auth" | "server auth";

export interface ApprovalDeps extends ClockAndLog {
  /** API for creating and reading certificate signing requests. */
  readonly client: ApiClient;
  /** Approves valid requests; absent if graftlet does not approve. */
  readonly approve?: Approve;
}

export interface CertificateRequestSpec {
  readonly signerName: string;
  readonly usage: CertificateUsage;
  readonly subject: Subject;
  /** Private key in PEM: the same key and subject result in the same request. */
  readonly key: string;
  /** Called with the request's name while it waits for approval. */
  readonly onWaiting: (name: string) => void;
}

const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/** Requests a certificate from the cluster and waits for it until the signal aborts. @returns the chain in PEM. @throws CodedError
 *  permission_denied if the request was denied, failed_precondition if the signer failed: a new key is needed then; not_found if the
 *  request was deleted; otherwise the API server's error.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/ */
export async function requestCertificate(
  deps: ApprovalDeps,
  spec: CertificateRequestSpec,
  signal: AbortSignal,
): Promise<string> {
  const { client } = deps;
  const { signerName, usage, subject, key, onWaiting } = spec;
  const name = requestName(key, signerName, subject);
  const request = Buffer.from(await signingRequest(subject, key)).toString("base64");
  const body = {
    apiVersion: "certificates.k8s.io/v1",
    kind: "CertificateSigningRequest",
    metadata: { name },
    spec: { request, signerName, usages: ["digital signature", usage] },
  };
  try {
    await client.create(path, body, { signal });
  } catch (error) {
    if (!hasCode(error, "already_exists")) throw error;
  }
  onWaiting(name);
  return waitUntilIssued(deps, name, signal);
}

/** Watches one request until its end, and approves it if this process is an approver. */
async function waitUntilIssued(deps: ApprovalDeps, name: string, signal: AbortSignal): Promise<string> {
  const { client, clock, log, approve } = deps;
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const over = new AbortController();
  const stop = AbortSignal.any([signal, over.signal]);
  const approving = new LatestSlot<CertificateSigningRequest>(async (request) => approve?.(request, stop), reject);
  let seen = false;
  const handle = (request: CertificateSigningRequest | undefined) => {
    // The first list may be older than the request.
    if (!request)
      return void (seen && reject(new CodedError("not_found", `certificate signing request ${name} was deleted`)));
    seen = true;
    const end = request.status?.conditions?.find(({ type }) => type === "Denied" || type === "Failed");
    const why = `${end?.reason ?? ""}${end?.message ? `: ${end.message}` : ""}`;
    if (end?.type === "Denied")
      return reject(new CodedError("permission_denied", `certificate signing request ${name} was denied (${why})`));
    if (end)
      return reject(new CodedError("failed_precondition", `certificate signing request ${name} failed (${why})`));
    const { certificate } = request.status ?? {};
    if (certificate) resolve(Buffer.from(certificate, "base64").toString("utf8"));
    else if (!request.status?.conditions?.length) approving.put(request);
  };
  const watch = createReflector<CertificateSigningRequest>({
    client,
    clock,
    log,
    path,
    fieldSelector: `metadata.name=${name}`,
    handler: {
      replace: ([request]) => handle(request),
      changed: (request, type) => handle(type === "deleted" ? undefined : request),
    },
  });
  const watching = watch.run(stop);
  try {
    return await untilAborted(promise, signal);
  } finally {
    over.abort();
    await watching;
    await approving.idle();
  }
}
