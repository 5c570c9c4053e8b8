import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { CodedError, hasCode, messageOf } from "../lib/errors.ts";
import type { Reloading } from "../lib/reloading.ts";
import { type Runnable, untilAborted } from "../lib/runnables.ts";
import { type ApprovalDeps, type CertificateUsage, requestCertificate } from "./approval.ts";
import { type PairStore, isValid, parsePair } from "./pair-store.ts";
import type { KeyPair } from "./self-signed.ts";
import { type Subject, newKey } from "./signing-request.ts";
import { createSignal } from "../lib/signal.ts";

/** A certificate issued by the cluster. */
export interface CertificateMeasures {
  /** Records that no certificate was issued; the request will be repeated. */
  failed(): void;
  /** @param ageMs age of the replaced certificate. */
  replaced(ageMs: number): void;
}

export interface IssuedOptions extends ApprovalDeps {
  /** Name in logs. */
  readonly name: string;
  readonly signerName: string;
  readonly usage: CertificateUsage;
  /** Names that the certificate must currently contain. */
  readonly subject: () => Subject;
  readonly store: PairStore;
  readonly measures: CertificateMeasures;
}

/** A certificate issued by the cluster; undefined before it is issued and after it has expired. */
export interface IssuedCertificate extends Reloading<KeyPair | undefined>, Runnable {
  /** Name of the request that waits for approval. */
  waiting(): string | undefined;
  /** Resolves once there is a valid certificate. */
  issued(signal: AbortSignal): Promise<void>;
}

/** Timeout of an approval; then a request with a new key follows. The kubelet's value. */
const approvalTimeoutMs = 15 * 60_000;
const firstRetryDelayMs = 2_000;
const maxRetryDelayMs = 32_000;
const renewalCheckIntervalMs = 60_000;

/** Obtains a certificate from the cluster, keeps it in the store, and renews it at a random moment between 70 and 90 % of its lifetime,
 *  or immediately if its names are wrong. @param signal of the first read of the store.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/#certificate-rotation */
export async function createIssuedCertificate(options: IssuedOptions, signal: AbortSignal): Promise<IssuedCertificate> {
  const { name, clock, log, store, subject, measures } = options;
  const first = Promise.withResolvers<void>();
  let waiting: string | undefined;
  const used = createCurrentPair(clock);
  let looked = false;
  const look = async (stop: AbortSignal) => {
    const kept = await store.read(stop);
    looked = true;
    if (!kept || !hasSubject(kept, subject()) || !isValid(kept, clock.now())) return;
    used.take(kept);
    first.resolve();
  };
  // An unavailable store is read again before a certificate is requested.
  await look(signal).catch((error: unknown) =>
    log.warn({ name, why: messageOf(error) }, "cannot read the stored certificate"),
  );

  const onRequest = (request: string) => {
    waiting = request;
    if (!options.approve)
      log.info(
        { name, request },
        `certificate request is waiting for approval: kubectl certificate approve ${request}`,
      );
  };
  const renew = async (stop: AbortSignal) => {
    const before = used.span();
    try {
      used.take(await issue(options, onRequest, clock.within(approvalTimeoutMs, stop)));
      first.resolve();
      if (before) measures.replaced(clock.now() - before.from);
      log.info({ name, until: new Date(used.span()?.until ?? 0).toISOString() }, "certificate issued");
    } finally {
      waiting = undefined;
    }
  };
  return {
    name,
    current: used.current,
    waiting: () => waiting,
    issued: (stop) => untilAborted(first.promise, stop),
    onChange: used.onChange,
    async run(stop) {
      let pause = firstRetryDelayMs;
      while (!stop.aborted) {
        if (used.dropExpired()) log.warn({ name }, "certificate expired before a new one was issued");
        const pair = used.current();
        const leftMs = used.renewAt() - clock.now();
        if (pair && leftMs > 0 && hasSubject(pair, subject())) {
          await clock.sleep(Math.min(renewalCheckIntervalMs, leftMs), stop).catch(() => {});
          continue;
        }
        try {
          await (looked ? renew(stop) : look(stop));
          pause = firstRetryDelayMs;
        } catch (error) {
          if (stop.aborted) return;
          measures.failed();
          log.warn({ name, why: messageOf(error) }, "cannot obtain a certificate; retrying");
          await clock.sleep(pause * clock.jitter(1, 1.1), stop).catch(() => {});
          pause = Math.min(pause * 2, maxRetryDelayMs);
        }
      }
    },
  };
}

/** The current certificate; undefined before the first is issued and after it has expired. */
function createCurrentPair(clock: IssuedOptions["clock"]) {
  const changed = createSignal();
  let pair: KeyPair | undefined;
  let span: { readonly from: number; readonly until: number } | undefined;
  let renewAt = 0;
  return {
    current: () => pair,
    /** Validity of the last certificate, which may have expired. */
    span: () => span,
    renewAt: () => renewAt,
    onChange: changed.subscribe,
    take(found: KeyPair) {
      const { validFromDate, validToDate } = new X509Certificate(found.certificate);
      span = { from: validFromDate.getTime(), until: validToDate.getTime() };
      renewAt = span.from + (span.until - span.from) * clock.jitter(0.7, 0.9);
      pair = found;
      changed.send();
    },
    /** @returns true if the certificate has just expired. */
    dropExpired(): boolean {
      if (!pair || !span || clock.now() < span.until) return false;
      pair = undefined;
      changed.send();
      return true;
    },
  };
}

/** Completes one request; its key survives a restart, so that the same request is found again. */
async function issue(options: IssuedOptions, onWaiting: (name: string) => void, signal: AbortSignal): Promise<KeyPair> {
  const { store, clock, signerName, usage } = options;
  const key = (await store.pendingKey(signal)) ?? (await newKey());
  await store.storePendingKey(key, signal);
  try {
    const asked = { signerName, usage, subject: options.subject(), key, onWaiting };
    const certificate = await requestCertificate(options, asked, signal);
    const pair = parsePair(`${certificate}\n${key}`);
    if (!pair) throw new CodedError("failed_precondition", "the issued certificate is for a different key");
    await store.write(pair, clock.now(), signal);
    await store.storePendingKey(undefined, signal);
    return pair;
  } catch (error) {
    if (hasCode(error, "permission_denied", "failed_precondition", "not_found", "deadline_exceeded"))
      await store.storePendingKey(undefined, clock.within(10_000));
    throw error;
  }
}

function hasSubject({ certificate }: KeyPair, { commonName, organization, names }: Subject): boolean {
  const parsed = new X509Certificate(certificate);
  const subject = parsed.subject.split("\n");
  return (
    subject.includes(`CN=${commonName}`) &&
    subject.includes(`O=${organization}`) &&
    names.every((name) => (isIP(name) ? parsed.checkIP(name) : parsed.checkHost(name)) !== undefined)
  );
}
