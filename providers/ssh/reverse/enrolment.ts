import ssh2, { type Connection as ServerConnection, type ParsedKey, type ServerChannel } from "ssh2";
import type { ClockAndLog } from "../../../src/lib/log.ts";
import { CodedError, messageOf } from "../../../src/lib/errors.ts";
import type { EnrolmentHandler } from "../../../src/seams/enrolment.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import { fingerprintOf } from "../connection/fingerprint.ts";

/** A machine that has logged in with a token. */
export interface EnrollingMachine {
  readonly nodeName: string;
  readonly token: string;
  readonly key: ParsedKey;
  readonly from: string;
}

export interface EnrolmentDeps extends ClockAndLog {
  readonly handler: EnrolmentHandler;
}

/** Time limit for an enrolment, milliseconds. */
const timeoutMs = 15_000;
/** Maximum input from a machine, bytes: one public key is expected. */
const maxInputBytes = 16 * 1024;

/** Serves one session of a machine that has logged in to enrol. It reads the machine's public host key from standard input, and writes the
 *  lines for its authorized_keys. The connection ends when the machine closes it, or at the time limit. */
export function acceptEnrolment(client: ServerConnection, machine: EnrollingMachine, deps: EnrolmentDeps): void {
  const limit = deps.clock.within(timeoutMs);
  limit.addEventListener("abort", () => client.end(), { once: true });
  let isServed = false;
  client.on("session", (accept, reject) => {
    if (isServed) return reject();
    isServed = true;
    const session = accept();
    session.on("error", () => undefined);
    const begin = (acceptCommand: () => ServerChannel) => {
      const channel = acceptCommand();
      channel.on("error", () => undefined);
      channel.stderr.on("error", () => undefined);
      serveSession(channel, machine, { ...deps, signal: limit }).catch((error: unknown) =>
        deps.log.warn({ err: error }, "cannot answer a machine that enrols"),
      );
    };
    session.once("exec", begin);
    session.once("shell", begin);
  });
}

interface SessionDeps extends EnrolmentDeps {
  readonly signal: AbortSignal;
}

async function serveSession(channel: ServerChannel, machine: EnrollingMachine, deps: SessionDeps): Promise<void> {
  const { handler, log, signal } = deps;
  const { nodeName, token, key, from } = machine;
  try {
    const hostKeyFingerprint = hostKeyOf(await readInput(channel, signal));
    const answer = await handler.enrol(
      { nodeName, token, machineKey: authorizedKey(key), hostKeyFingerprint, from },
      signal,
    );
    log.info({ machine: nodeName, from, hostKey: hostKeyFingerprint }, "machine has enrolled");
    channel.write(answer);
    channel.exit(0);
  } catch (error) {
    log.warn({ err: error, machine: nodeName, from }, "cannot enrol machine");
    channel.stderr.write(`graftlet: ${error instanceof CodedError ? error.message : "cannot enrol; see its log"}\n`);
    channel.exit(1);
  }
  channel.end();
}

/** Reads standard input to its end. @throws CodedError, one sentence, if it is longer than the limit. */
function readInput(channel: ServerChannel, signal: AbortSignal): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let text = "";
  channel.setEncoding("utf8");
  channel.on("data", (chunk: string) => {
    if (text.length <= maxInputBytes) text += chunk;
    if (text.length > maxInputBytes) reject(noHostKey());
  });
  channel.once("end", () => resolve(text));
  channel.once("close", () => reject(new CodedError("cancelled", "the machine has closed its session")));
  return untilAborted(promise, signal);
}

/** Returns the fingerprint of a public host key. @throws CodedError, one sentence, if the text is not one. */
function hostKeyOf(text: string): string {
  const key = ssh2.utils.parseKey(text.trim());
  if (key instanceof Error || key.isPrivateKey()) throw noHostKey();
  return fingerprintOf(key.getPublicSSH());
}

function noHostKey(): CodedError {
  return new CodedError(
    "invalid_argument",
    "standard input is not a public host key: pass one, such as /etc/ssh/ssh_host_ed25519_key.pub",
  );
}

/** Returns the public half of a private key. @throws CodedError, one sentence. */
export function publicKeyOf(privateKey: string, passphrase: string | undefined): string {
  const key = ssh2.utils.parseKey(privateKey, passphrase);
  if (key instanceof Error)
    throw new CodedError("invalid_argument", `the private key is not usable: ${messageOf(key)}`);
  return authorizedKey(key);
}

function authorizedKey(key: ParsedKey): string {
  return `${key.type} ${key.getPublicSSH().toString("base64")}`;
}
