import type { NodeConfig } from "./config/node-config.ts";
import { acquireLock } from "./host/lock.ts";
import type { Clock } from "./lib/clock.ts";
import { codeOf, hasCode, messageOf } from "./lib/errors.ts";
import type { Host } from "./seams/host.ts";
import { type Sharing, TargetError } from "./seams/provider.ts";
import { serverName } from "./server/healthz.ts";

const kubeletHealthPort = 10_248;
/** Whoever listens there and says nothing for so long, milliseconds, is no kubelet. */
const answerWithinMs = 2_000;

export interface ClaimDeps {
  readonly host: Host;
  readonly sharing: Sharing;
  readonly clock: Clock;
}

/** Makes sure that this is the only agent on its root directory, and that no kubelet runs on the target. Nodes that share
 *  their runtime leave each other's pods alone, so they may stand side by side.
 *  @returns what gives the root directory back. @throws TargetError, one sentence, when it is in use or cannot be written;
 *  unavailable and deadline_exceeded as the host does. */
export async function claimTarget(
  { host, sharing, clock }: ClaimDeps,
  { rootDir }: Pick<NodeConfig, "rootDir">,
  signal: AbortSignal,
): Promise<AsyncDisposable> {
  const directory = `${rootDir}/graftlet`;
  try {
    await host.fs.apply([{ do: "mkdir", path: directory, mode: 0o700, parents: true }], signal);
    await host.fs.apply([{ do: "write", path: `${directory}/lock`, data: "", mode: 0o600 }], signal);
  } catch (error) {
    throw unwritable(rootDir, error);
  }
  const lock = await acquireLock(host, `${directory}/lock`, signal).catch((error: unknown) => {
    throw unlockable(rootDir, error);
  });
  const neighbour = await kubeletOn(host, clock.within(answerWithinMs, signal));
  if (neighbour === "none" || (neighbour === "sharing graftlet" && sharing === "shared")) return lock;
  await lock[Symbol.asyncDispose]();
  throw new TargetError(
    "RuntimeInUse",
    "failed_precondition",
    `another agent answers on the target's port ${kubeletHealthPort} (RuntimeInUse): stop the kubelet or graftlet that runs there, for two agents on one runtime delete each other's pods`,
  );
}

/** What says nothing of the root directory, but of the way to it. */
function isOfTheWay(error: unknown): boolean {
  return hasCode(error, "unavailable", "deadline_exceeded", "cancelled");
}

function unwritable(rootDir: string, cause: unknown): unknown {
  if (isOfTheWay(cause)) return cause;
  const directory = `--root-dir ${JSON.stringify(rootDir)}`;
  return hasCode(cause, "resource_exhausted")
    ? new TargetError(
        "RootDirFull",
        "resource_exhausted",
        `${directory} has no space left (${messageOf(cause)}): free some on the target, or name another directory`,
        { cause },
      )
    : new TargetError(
        "RootDirUnusable",
        "permission_denied",
        `${directory} is not writable (${messageOf(cause)}): make it so, or name another directory`,
        { cause },
      );
}

function unlockable(rootDir: string, cause: unknown): unknown {
  if (isOfTheWay(cause)) return cause;
  const directory = `--root-dir ${JSON.stringify(rootDir)}`;
  if (hasCode(cause, "failed_precondition"))
    return new TargetError(
      "RuntimeInUse",
      "failed_precondition",
      `${directory} is in use by another graftlet (RuntimeInUse): stop that one, or name another directory`,
      { cause },
    );
  return new TargetError(
    "RootDirUnusable",
    codeOf(cause),
    hasCode(cause, "not_found")
      ? `${directory} cannot be locked, for the target has no flock program: install util-linux or busybox there`
      : `${directory} cannot be locked (${messageOf(cause)}): name a directory on a file system that has locks`,
    { cause },
  );
}

/** What answers on the health port as a kubelet's health endpoint does. */
async function kubeletOn(host: Host, signal: AbortSignal): Promise<"none" | "kubelet" | "sharing graftlet"> {
  const connection = await host.dial({ host: "127.0.0.1", port: kubeletHealthPort }, signal).catch(() => undefined);
  if (!connection) return "none";
  try {
    connection.setEncoding("utf8");
    connection.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const { promise, resolve } = Promise.withResolvers<string>();
    connection.once("data", (text: string) => resolve(text));
    connection.once("error", () => resolve(""));
    connection.once("end", () => resolve(""));
    signal.addEventListener("abort", () => resolve(""), { once: true });
    const answer = await promise;
    if (!answer.startsWith("HTTP/1.")) return "none";
    return answer.toLowerCase().includes(`\r\nserver: ${serverName("shared")}\r\n`) ? "sharing graftlet" : "kubelet";
  } finally {
    connection.destroy();
  }
}
