import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { CodedError, hasCode, messageOf } from "../lib/errors.ts";
import type { Reloading } from "../lib/reloading.ts";
import { type Service, untilAborted } from "../lib/service-group.ts";
import type { CertificateMeasures } from "../measures.ts";
import { type ApprovalDeps, type SignerName, askForCertificate } from "./approval.ts";
import { type PairStore, isValid, pairIn } from "./pair-store.ts";
import type { KeyPair } from "./self-signed.ts";
import { type Subject, newKey } from "./signing-request.ts";

export interface IssuedOptions extends ApprovalDeps {
  /** Name in logs. */
  readonly name: string;
  readonly signerName: SignerName;
  /** The names that the certificate must contain now. */
  readonly subject: () => Subject;
  readonly store: PairStore;
  readonly measures: CertificateMeasures;
}

/** A certificate issued by the cluster; undefined until then. */
export interface IssuedCertificate extends Reloading<KeyPair | undefined>, Service {
  /** Name of the request that waits for approval. */
  waiting(): string | undefined;
  /** Resolves once there is a valid certificate. */
  issued(signal: AbortSignal): Promise<void>;
}

/** Timeout of an approval; then a request with a new key follows. The kubelet's value. */
const approvalMs = 15 * 60_000;
const firstPauseMs = 2_000;
const longestPauseMs = 32_000;
/** Interval of the check for renewal. */
const lookMs = 60_000;

/** Obtains a certificate from the cluster, keeps it in the store, and renews it at a random moment between 70 and 90 % of its lifetime,
 *  or immediately if its names are wrong. @param signal of the first read of the store.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/#certificate-rotation */
export async function createIssuedCertificate(options: IssuedOptions, signal: AbortSignal): Promise<IssuedCertificate> {
  const { name, clock, log, store, subject, measures } = options;
  const listeners = new Set<() => void>();
  const first = Promise.withResolvers<void>();
  let waiting: string | undefined;
  let pair: KeyPair | undefined;
  let renewAt = 0;
  const use = (found: KeyPair) => {
    const { validFromDate, validToDate } = new X509Certificate(found.certificate);
    const lifeMs = validToDate.getTime() - validFromDate.getTime();
    pair = found;
    renewAt = validFromDate.getTime() + lifeMs * clock.jitter(0.7, 0.9);
    first.resolve();
    for (const listener of listeners) listener();
  };
  let looked = false;
  const look = async (stop: AbortSignal) => {
    const kept = await store.read(stop);
    looked = true;
    if (kept && isFor(kept, subject()) && isValid(kept, clock.now())) use(kept);
  };
  // An unavailable store is read again before a certificate is requested.
  await look(signal).catch((error: unknown) =>
    log.warn({ name, why: messageOf(error) }, "stored certificate not read"),
  );

  const told = (request: string) => {
    waiting = request;
    if (!options.approve)
      log.info({ name, request }, `a certificate waits for approval: kubectl certificate approve ${request}`);
  };
  const renew = async (stop: AbortSignal) => {
    const before = pair && new X509Certificate(pair.certificate).validFromDate;
    try {
      use(await issue(options, told, clock.within(approvalMs, stop)));
      if (before) measures.replaced(clock.now() - before.getTime());
      log.info({ name, until: pair && new X509Certificate(pair.certificate).validTo }, "certificate issued");
    } finally {
      waiting = undefined;
    }
  };
  return {
    name,
    current: () => pair,
    waiting: () => waiting,
    issued: (stop) => untilAborted(first.promise, stop),
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    async run(stop) {
      let pause = firstPauseMs;
      while (!stop.aborted) {
        const due = !pair || clock.now() >= renewAt || !isFor(pair, subject());
        if (!due) {
          await clock.sleep(Math.min(lookMs, renewAt - clock.now()), stop).catch(() => {});
          continue;
        }
        try {
          await (looked ? renew(stop) : look(stop));
          pause = firstPauseMs;
        } catch (error) {
          if (stop.aborted) return;
          measures.failed();
          log.warn({ name, why: messageOf(error) }, "no certificate was issued, will ask again");
          await clock.sleep(pause * clock.jitter(1, 1.1), stop).catch(() => {});
          pause = Math.min(pause * 2, longestPauseMs);
        }
      }
    },
  };
}

/** Completes one request; its key survives a restart, so that the same request is found again. */
async function issue(options: IssuedOptions, onWaiting: (name: string) => void, signal: AbortSignal): Promise<KeyPair> {
  const { store, clock, signerName, subject } = options;
  const key = (await store.pendingKey(signal)) ?? (await newKey());
  await store.keepPendingKey(key, signal);
  try {
    const certificate = await askForCertificate(options, { signerName, subject: subject(), key, onWaiting }, signal);
    const pair = pairIn(`${certificate}\n${key}`);
    if (!pair) throw new CodedError("failed_precondition", "the certificate that was issued is for another key");
    await store.write(pair, clock.now(), signal);
    await store.keepPendingKey(undefined, signal);
    return pair;
  } catch (error) {
    if (hasCode(error, "permission_denied", "failed_precondition", "not_found", "deadline_exceeded"))
      await store.keepPendingKey(undefined, clock.within(10_000));
    throw error;
  }
}

function isFor({ certificate }: KeyPair, { commonName, organization, names }: Subject): boolean {
  const parsed = new X509Certificate(certificate);
  const subject = parsed.subject.split("\n");
  return (
    subject.includes(`CN=${commonName}`) &&
    subject.includes(`O=${organization}`) &&
    names.every((name) => (isIP(name) ? parsed.checkIP(name) : parsed.checkHost(name)) !== undefined)
  );
}
