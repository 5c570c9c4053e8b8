import type { NodeConfig } from "./config/node-config.ts";
import { acquireLock } from "./host/lock.ts";
import type { Clock } from "./lib/clock.ts";
import { CodedError, hasCode, messageOf } from "./lib/errors.ts";
import type { Host } from "./seams/host.ts";

const kubeletHealthPort = 10_248;
/** Whoever listens there and says nothing for so long, milliseconds, is no kubelet. */
const answerWithinMs = 2_000;

export interface ClaimDeps {
  readonly host: Host;
  readonly clock: Clock;
}

/** Makes sure that this is the only agent on its root directory, and that no kubelet runs on the target.
 *  @returns what gives the root directory back. @throws CodedError, one sentence, when it is in use or cannot be written. */
export async function claimTarget(
  { host, clock }: ClaimDeps,
  { rootDir }: Pick<NodeConfig, "rootDir">,
  signal: AbortSignal,
): Promise<AsyncDisposable> {
  const directory = `${rootDir}/graftlet`;
  try {
    await host.fs.apply([{ do: "mkdir", path: directory, mode: 0o700, parents: true }], signal);
    await host.fs.apply([{ do: "write", path: `${directory}/lock`, data: "", mode: 0o600 }], signal);
  } catch (error) {
    throw new CodedError(
      "permission_denied",
      `--root-dir ${JSON.stringify(rootDir)} is not writable (${messageOf(error)}): make it so, or name another directory`,
      { cause: error },
    );
  }
  const lock = await acquireLock(host, `${directory}/lock`, signal).catch((error: unknown) => {
    if (!hasCode(error, "failed_precondition")) throw error;
    throw new CodedError(
      "failed_precondition",
      `--root-dir ${JSON.stringify(rootDir)} is in use by another graftlet (RuntimeInUse): stop that one, or name another directory`,
      { cause: error },
    );
  });
  if (!(await kubeletAnswers(host, clock.within(answerWithinMs, signal)))) return lock;
  await lock[Symbol.asyncDispose]();
  throw new CodedError(
    "failed_precondition",
    `another agent answers on the target's port ${kubeletHealthPort} (RuntimeInUse): stop the kubelet or graftlet that runs there, for two agents on one runtime delete each other's pods`,
  );
}

/** True when something answers as a kubelet's health endpoint does. */
async function kubeletAnswers(host: Host, signal: AbortSignal): Promise<boolean> {
  const connection = await host.dial({ host: "127.0.0.1", port: kubeletHealthPort }, signal).catch(() => undefined);
  if (!connection) return false;
  try {
    connection.setEncoding("utf8");
    connection.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const { promise, resolve } = Promise.withResolvers<boolean>();
    connection.once("data", (text: string) => resolve(text.startsWith("HTTP/1.")));
    connection.once("error", () => resolve(false));
    connection.once("end", () => resolve(false));
    signal.addEventListener("abort", () => resolve(false), { once: true });
    return await promise;
  } finally {
    connection.destroy();
  }
}
