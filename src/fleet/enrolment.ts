import { createHash, timingSafeEqual } from "node:crypto";
import type { ApiClient } from "../api/client.ts";
import { secretPath, secretText } from "../api/secrets.ts";
import type { EventSink } from "../pipeline.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, hasCode } from "../lib/errors.ts";
import type { Secret } from "../objects.ts";
import type { EnrolmentHandler } from "../seams/enrolment.ts";
import { approvedHostKey, type GraftedNode, isDeleted, machineReference } from "./grafted-node.ts";

/** The content of an enrolment's Secret: an unused token, the machine that has enrolled, or both while another machine may replace it. */
export interface Enrolment {
  /** SHA-256 of the token, in hexadecimal, and when it expires, RFC 3339. */
  readonly token: { readonly hash: string; readonly expires: string } | undefined;
  /** True if the token alone is enough, and nobody has to approve the machine. */
  readonly isApproved: boolean;
  readonly machine: EnrolledMachine | undefined;
}

export interface EnrolledMachine {
  /** The public key with which it opens its reverse tunnel, as a line of authorized_keys. */
  readonly key: string;
  /** `SHA256:…` of its sshd's host key. */
  readonly hostKeyFingerprint: string;
  /** The address from which it has enrolled. */
  readonly from: string;
}

export interface EnrolmentDeps {
  readonly client: Pick<ApiClient, "patch">;
  readonly clock: Clock;
  readonly events: EventSink;
  /** Returns an object of the fleet, with the defaults of its pool. */
  object(nodeName: string): GraftedNode | undefined;
  /** Returns the Secret of that name in the fleet's namespace. */
  secret(name: string): Secret | undefined;
  /** Returns the public half of a private key, as a line of authorized_keys. @throws CodedError. */
  publicKeyOf(privateKey: string, passphrase: string | undefined): string;
}

const secretPrefix = "graftlet-enrolment-";

/** Name of the Secret of a node's enrolment. */
export function enrolmentSecretName(nodeName: string): string {
  return `${secretPrefix}${nodeName}`;
}

/** Returns the name of the node whose enrolment is in the Secret with this name; undefined for any other Secret. */
export function nodeOfEnrolment(secretName: string): string | undefined {
  return secretName.startsWith(secretPrefix) ? secretName.slice(secretPrefix.length) : undefined;
}

/** The data of the Secret for a new token, in base64. It replaces a token that has not been used; a machine that has enrolled before is
 *  served until another one uses the token. */
export function tokenData(token: string, expires: Date, isApproved: boolean): Readonly<Record<string, string>> {
  return {
    "token-hash": encoded(hashOf(token)),
    expires: encoded(expires.toISOString()),
    approved: encoded(String(isApproved)),
  };
}

/** Reads the Secret of an enrolment. */
export function readEnrolment(secret: Secret | undefined): Enrolment | undefined {
  if (!secret) return undefined;
  const text = (key: string) => secretText(secret, key);
  const [hash, key] = [text("token-hash"), text("authorized_keys")];
  const machine = { key, hostKeyFingerprint: text("host-key-fingerprint"), from: text("from") };
  return {
    token: hash === "" ? undefined : { hash, expires: text("expires") },
    isApproved: text("machine-approved") === "true",
    machine: key === "" ? undefined : machine,
  };
}

/** True if the machine that has enrolled may be served: the token was enough, or the object's owner has approved its host key. */
export function isMachineApproved(object: GraftedNode, { isApproved, machine }: Enrolment): boolean {
  return machine !== undefined && (isApproved || approvedHostKey(object) === machine.hostKeyFingerprint);
}

/** Adds the keys of the enrolled machine to an object's specification. Keys that the specification already has take precedence. Pure. */
export function withEnrolledKeys(object: GraftedNode, secret: Secret | undefined): GraftedNode {
  const { ssh } = object.spec;
  const enrolment = ssh.reverse && !ssh.reverse.authorizedKeys ? readEnrolment(secret) : undefined;
  if (!enrolment?.machine || !isMachineApproved(object, enrolment)) return object;
  const { key, hostKeyFingerprint } = enrolment.machine;
  const trusts = ssh.hostKeyFingerprints !== undefined || ssh.hostCertificateAuthorities !== undefined;
  const keys = {
    reverse: { ...ssh.reverse, authorizedKeys: [key] },
    ...(!trusts && { hostKeyFingerprints: [hostKeyFingerprint] }),
  };
  return { ...object, spec: { ...object.spec, ssh: { ...ssh, ...keys } } };
}

/** Creates the handler that lets machines enrol for objects with `spec.ssh.reverse`, each with a one-time token from `graftlet enrol`. */
export function createEnrolment(deps: EnrolmentDeps): EnrolmentHandler {
  const { client, clock, events, object: objectOf, secret: secretOf, publicKeyOf } = deps;
  const found = (nodeName: string, token: string) => {
    const [object, secret] = [objectOf(nodeName), secretOf(enrolmentSecretName(nodeName))];
    const { token: expected, machine } = readEnrolment(secret) ?? {};
    const reverse = object?.spec.ssh.reverse;
    // The key of an earlier enrolment may be replaced; keys of the object's own specification may not.
    const isOwnKey = reverse?.authorizedKeys?.[0] === machine?.key;
    const mayEnrol = object && reverse && (!reverse.authorizedKeys || isOwnKey) && !isDeleted(object);
    if (!mayEnrol || !secret || !expected || !(Date.parse(expected.expires) > clock.now())) return undefined;
    return isSame(hashOf(token), expected.hash) ? { object, secret } : undefined;
  };
  return {
    isValid: (nodeName, token) => found(nodeName, token) !== undefined,
    async enrol({ nodeName, token, machineKey, hostKeyFingerprint, from }, signal) {
      const valid = found(nodeName, token);
      if (!valid) throw usedToken();
      const { object, secret } = valid;
      const answer = authorizedKeysFor(object, secretOf, publicKeyOf);
      const { name, namespace, resourceVersion } = secret.metadata;
      const approved = secret.data?.["approved"];
      const data = {
        "token-hash": null,
        expires: null,
        approved: null,
        authorized_keys: encoded(machineKey),
        "host-key-fingerprint": encoded(hostKeyFingerprint),
        from: encoded(from),
        "machine-approved": approved ?? null,
      };
      try {
        // The resourceVersion ensures that only one machine can use the token.
        await client.patch(
          secretPath(namespace, name),
          { type: "merge", body: { metadata: { resourceVersion }, data } },
          { signal },
        );
      } catch (error) {
        throw hasCode(error, "conflict", "not_found") ? usedToken() : error;
      }
      events.event(
        machineReference(object),
        "Normal",
        "MachineEnrolled",
        enrolledMessage({ hostKeyFingerprint, from }),
      );
      return answer;
    },
  };
}

/** Says which machine has enrolled. */
export function enrolledMessage({ hostKeyFingerprint, from }: Omit<EnrolledMachine, "key">): string {
  return `a machine has enrolled from ${from}; its host key is ${hostKeyFingerprint}`;
}

/** Returns the line for the machine's authorized_keys, with the public half of graftlet's login key; empty if graftlet logs in with a
 *  certificate or a password. */
function authorizedKeysFor(
  { spec: { ssh } }: GraftedNode,
  secretOf: EnrolmentDeps["secret"],
  publicKeyOf: EnrolmentDeps["publicKeyOf"],
): string {
  const login = ssh.secretRef && secretOf(ssh.secretRef.name);
  const text = (key: string) => secretText(login, key);
  const privateKey = text("ssh-privatekey");
  // With a certificate, the machine trusts the authority that has signed it, and needs no key.
  if (privateKey === "" || text("ssh-certificate") !== "") return "";
  return `${publicKeyOf(privateKey, text("ssh-passphrase") || undefined)} graftlet\n`;
}

function usedToken(): CodedError {
  return new CodedError(
    "permission_denied",
    "the token has already been used, or is no longer valid: make another one",
  );
}

function hashOf(token: string): string {
  return createHash("sha256").update(token).digest("hex");
}

function isSame(one: string, other: string): boolean {
  return one.length === other.length && timingSafeEqual(Buffer.from(one), Buffer.from(other));
}

function encoded(text: string): string {
  return Buffer.from(text).toString("base64");
}
