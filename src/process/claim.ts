import { posix } from "node:path";
import type { NodeConfig } from "../config/node-config.ts";
import {
  isUnrecorded,
  missingDirectories,
  type OwnershipRecord,
  readOwnershipRecord,
  writeOwnershipRecord,
} from "../host/ownership-record.ts";
import { type HolderHeartbeat, remoteHeartbeat } from "../host/holder-heartbeat.ts";
import { fenceDirectory, pluginDirectoryOf, pluginRegistryOf, ownDirectory, podsDirectory } from "../host/layout.ts";
import {
  acquireLocks,
  type FencingToken,
  type HeldLocks,
  type LockRequest,
  LockHeldError,
  SupersededError,
} from "../host/lock.ts";
import { type RootClaimant, type RootUser, isAbandoned, otherOwner, rootDirTaken } from "../host/root-owner.ts";
import { CodedError, codeOf, hasCode, ignoreCode, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { refuseOtherAgent, runtimeInUse } from "./other-agent.ts";
import type { TargetClaim } from "../kubelet/deps.ts";
import { logLinksDirectory } from "../kubelet/settings.ts";
import { type Target, TargetError } from "../seams/provider.ts";
import { createSignal } from "../lib/signal.ts";

export type ClaimedTarget = Pick<
  Target,
  "host" | "sharing" | "runtimeSocket" | "link" | "network" | "missingPrivileges"
>;

export interface NodeClaimDeps extends ClockAndLog {
  readonly target: ClaimedTarget;
  /** Identifies this process among those that are told to serve the node, one after the other; absent if there is no other. */
  readonly fencingToken?: FencingToken | undefined;
  /** The object for which the node runs; absent without one. */
  readonly claimant?: RootClaimant | undefined;
  /** ID of this process, to recognize its own health endpoint. */
  readonly instance?: string;
  /** Settings of the heartbeat to the process that holds the locks on a remote target; `remoteHeartbeat` by default. */
  readonly pulse?: Omit<HolderHeartbeat, "clock">;
}

/** A target that is reserved for this node. */
export type Claim = TargetClaim & AsyncDisposable;

export type ClaimedNode = Pick<NodeConfig, "nodeName" | "rootDir"> & {
  readonly kubelet: Pick<NodeConfig["kubelet"], "podLogsDir">;
};

/** Timeout and interval of attempts to re-acquire a lost lock, milliseconds: the process that held it for us may take a moment to
 *  end. */
const reacquireTimeoutMs = 15_000;
const reacquireIntervalMs = 500;
const runtimeDetectionTimeoutMs = 10_000;

/** Ensures that this is the only agent on its root directory, and on its runtime unless that is shared, and that no kubelet runs
 *  on the target. Records the node's name and the directories that were missing on the target in the root directory.
 *  @throws TargetError, one sentence, if another agent is running (RuntimeInUse), the root directory belongs to another node or object
 *  (RootDirTaken), or it cannot be written or locked; unavailable and deadline_exceeded like the host. */
export async function claimTarget(deps: NodeClaimDeps, node: ClaimedNode, signal: AbortSignal): Promise<Claim> {
  try {
    return await claim(deps, node, signal);
  } catch (error) {
    throw await unlessSudoIsMissing(error, deps.target, signal);
  }
}

async function claim(deps: NodeClaimDeps, node: ClaimedNode, signal: AbortSignal): Promise<Claim> {
  const { host, sharing, network } = deps.target;
  const { nodeName, rootDir } = node;
  const user = { nodeName, claimant: deps.claimant };
  const record = await readOwnershipRecord(host.fs, rootDir, signal);
  await refuseOtherOwner(deps, record, { rootDir, user }, signal);
  const isNewNode = network?.auto === true && !record && (await isUnrecorded(host.fs, rootDir, signal));
  const pluginDirectories = [pluginDirectoryOf(rootDir), pluginRegistryOf(rootDir)];
  const directories = [podsDirectory(rootDir), ...pluginDirectories, node.kubelet.podLogsDir, logLinksDirectory];
  const missing = record?.made ?? (await missingDirectories(host.fs, directories, signal));
  await makeLockFile(host, rootDir, signal);
  // A predecessor in serving the node releases its locks a moment after they are asked for.
  const first = deps.fencingToken ? reacquire : acquire;
  let held = await first(deps, rootDir, signal);
  const lost = createSignal();
  /** Notifies subscribers when these locks are lost, unless the claim has replaced them. */
  const notifyOnLoss = (locks: HeldLocks) => {
    void locks.ended.then(() => {
      if (held !== locks || isReleased) return;
      // The link logs its own loss.
      if (!deps.target.link?.trouble()) deps.log.warn({ rootDir }, "lost the root directory lock");
      lost.send();
    });
  };
  let isReleased = false;
  const refuseOthers = async (stop: AbortSignal): Promise<OwnershipRecord | undefined> => {
    await refuseOtherAgent({ ...deps, host, sharing }, stop);
    // Another object may have taken the directory before it was locked.
    return deps.claimant ? await refuseLaterOwner(host, record, { rootDir, user }, stop) : record;
  };
  try {
    const now = await refuseOthers(signal);
    if (!isRecorded(now, user)) {
      const { object: _former, ...rest } = now ?? { made: missing };
      const owner = deps.claimant && { object: deps.claimant.object };
      const network = isNewNode && { network: { is: "new" } as const };
      await writeOwnershipRecord(host.fs, rootDir, { ...rest, node: nodeName, ...owner, ...network }, signal);
    }
  } catch (error) {
    await held[Symbol.asyncDispose]();
    throw error;
  }
  notifyOnLoss(held);
  return {
    isLost: () => held.hasEnded(),
    isVerified: () => held.isVerified(),
    async verify(until) {
      const locks = held;
      await locks.verify(until).catch((cause: unknown) => {
        if (!locks.hasEnded()) throw cause;
        const why = deps.target.link?.trouble()?.message ?? "its lock was lost and is being re-acquired";
        throw new CodedError("unavailable", `the target cannot be used: ${why}`, { cause });
      });
    },
    onLost: lost.subscribe,
    async renew(stop) {
      if (!held.hasEnded()) return held.verify(stop);
      held = await reacquire(deps, rootDir, stop);
      notifyOnLoss(held);
      await refuseOthers(stop);
      deps.log.info({ rootDir }, "re-acquired the root directory lock");
    },
    [Symbol.asyncDispose]() {
      isReleased = true;
      return held[Symbol.asyncDispose]();
    },
  };
}

interface RootUse {
  readonly rootDir: string;
  readonly user: RootUser;
}

/** True if the record says who uses the root directory. */
function isRecorded(record: OwnershipRecord | undefined, { nodeName, claimant }: RootUser): boolean {
  return record?.node === nodeName && record.object?.uid === claimant?.object.uid;
}

/** Refuses a root directory that belongs to another node or object, whether that is using it or not. Writes nothing.
 *  @throws TargetError RootDirTaken. */
async function refuseOtherOwner(
  { target: { host } }: NodeClaimDeps,
  record: OwnershipRecord | undefined,
  { rootDir, user }: RootUse,
  signal: AbortSignal,
): Promise<void> {
  const owner = otherOwner(record, user);
  if (owner && !isAbandoned(owner, user, owner.isNamesake && (await isLocked(host, rootDir, signal))))
    throw rootDirTaken(rootDir, owner, user);
}

/** As `refuseOtherOwner`, once the directory is locked. @param former what it recorded before. @returns what it records. */
async function refuseLaterOwner(
  host: ClaimedTarget["host"],
  former: OwnershipRecord | undefined,
  { rootDir, user }: RootUse,
  signal: AbortSignal,
): Promise<OwnershipRecord | undefined> {
  const record = await readOwnershipRecord(host.fs, rootDir, signal);
  const owner = otherOwner(record, user);
  if (owner && owner.id !== otherOwner(former, user)?.id) throw rootDirTaken(rootDir, owner, user);
  return record;
}

/** True if a process has locked the root directory. */
async function isLocked(host: ClaimedTarget["host"], rootDir: string, signal: AbortSignal): Promise<boolean> {
  try {
    await using _lock = await acquireLocks(host, [{ path: lockFile(rootDir) }], signal);
    return false;
  } catch (error) {
    if (error instanceof LockHeldError) return true;
    throw error;
  }
}

/** Returns the error of a failed claim. If the login cannot write because sudo asks for a password, the error says so, as that
 *  has to be fixed. */
async function unlessSudoIsMissing(error: unknown, target: ClaimedTarget, signal: AbortSignal): Promise<unknown> {
  if (!hasCode(error, "permission_denied")) return error;
  const asked = target.missingPrivileges?.(signal);
  const missing = asked && (await ignoreCode(asked, "unavailable", "cancelled"));
  const [sentence] = missing?.messages ?? [];
  if (!missing?.sudoNeedsPassword || sentence === undefined) return error;
  const message = `${sentence} Currently, ${messageOf(error)}`;
  return new TargetError("SudoNeedsPassword", "permission_denied", message, { cause: error });
}

async function makeLockFile(host: ClaimedTarget["host"], rootDir: string, signal: AbortSignal): Promise<void> {
  const directory = ownDirectory(rootDir);
  try {
    await host.fs.apply([{ kind: "mkdir", path: directory, mode: 0o700, parents: true }], signal);
    await host.fs.apply([{ kind: "write", path: lockFile(rootDir), data: "", mode: 0o600 }], signal);
  } catch (error) {
    throw unwritable(rootDir, error);
  }
}

/** True for errors of the connection to the target, not of the root directory. */
function isConnectionError(error: unknown): boolean {
  return hasCode(error, "unavailable", "deadline_exceeded", "cancelled");
}

function unwritable(rootDir: string, cause: unknown): unknown {
  if (isConnectionError(cause)) return cause;
  const directory = `--root-dir ${JSON.stringify(rootDir)}`;
  return hasCode(cause, "resource_exhausted")
    ? new TargetError(
        "RootDirFull",
        "resource_exhausted",
        `${directory} has no space left (${messageOf(cause)}): free some on the target, or use another directory`,
        { cause },
      )
    : new TargetError(
        "RootDirUnusable",
        "permission_denied",
        `${directory} is not writable (${messageOf(cause)}): make it writable, or use another directory`,
        { cause },
      );
}

export function lockFile(rootDir: string): string {
  return `${ownDirectory(rootDir)}/lock`;
}

/** Retries until the previous holder of the locks has ended. @throws TargetError RuntimeInUse if another agent holds them. */
async function reacquire(deps: NodeClaimDeps, rootDir: string, signal: AbortSignal): Promise<HeldLocks> {
  const deadline = deps.clock.monotonic() + reacquireTimeoutMs;
  for (;;) {
    try {
      return await acquire(deps, rootDir, signal);
    } catch (error) {
      if (!(error instanceof TargetError && error.reason === "RuntimeInUse") || deps.clock.monotonic() >= deadline)
        throw error;
    }
    await deps.clock.sleep(reacquireIntervalMs, signal);
  }
}

/** Locks the root directory, and the directory of the runtime's socket: two nodes on one runtime conflict there even if their root
 *  directories, or the machines that they run on, differ. @throws TargetError RuntimeInUse. */
function acquire(deps: NodeClaimDeps, rootDir: string, signal: AbortSignal): Promise<HeldLocks> {
  return lockTarget(deps, rootDir, [{ path: lockFile(rootDir) }], signal);
}

/** Acquires locks of a root directory, and the runtime's lock if the runtime is known and can be locked. @throws TargetError RuntimeInUse. */
export async function lockTarget(
  { target, clock, log, pulse = remoteHeartbeat, fencingToken: token }: NodeClaimDeps,
  rootDir: string,
  own: readonly LockRequest[],
  signal: AbortSignal,
): Promise<HeldLocks> {
  const { host, sharing, link } = target;
  const fence = token && { directory: fenceDirectory(rootDir), token };
  const lock = (locks: readonly LockRequest[]) => acquireLocks(host, locks, signal, link && { ...pulse, clock }, fence);
  const directory = await socketDirectory(target, clock.within(runtimeDetectionTimeoutMs, signal)).catch(
    (error: unknown) => {
      if (hasCode(error, "unavailable", "cancelled")) throw error;
      log.info({ err: error }, "runtime not detected yet; skipping the exclusivity check");
      return undefined;
    },
  );
  try {
    if (directory === undefined) return await lock(own);
    const runtime: LockRequest = { path: directory, shared: sharing === "shared" };
    return await lock([...own, runtime]).catch(async (error: unknown) => {
      const isFinal = error instanceof LockHeldError || error instanceof SupersededError;
      if (isFinal || hasCode(error, "not_found") || isConnectionError(error)) throw error;
      log.info({ err: error }, "cannot lock the runtime's directory; skipping the exclusivity check");
      return lock(own);
    });
  } catch (error) {
    throw unlockable(rootDir, directory, error);
  }
}

/** True if no other graftlet uses the runtime. */
export async function isOnlyAgent(
  { target, clock }: Omit<NodeClaimDeps, "log">,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const path = await socketDirectory(target, clock.within(runtimeDetectionTimeoutMs, signal));
    if (path === undefined) return false;
    await using _lock = await acquireLocks(
      target.host,
      [{ path }],
      signal,
      target.link && { ...remoteHeartbeat, clock },
    );
    return true;
  } catch (error) {
    if (hasCode(error, "unavailable", "cancelled")) throw error;
    return false;
  }
}

async function socketDirectory(
  { host, runtimeSocket }: ClaimedTarget,
  signal: AbortSignal,
): Promise<string | undefined> {
  if (!runtimeSocket) return undefined;
  const socket = await runtimeSocket(signal);
  return host.fs.realpath(socket, signal).then(posix.dirname, (error: unknown) => {
    if (!hasCode(error, "not_found")) throw error;
    return host.fs.realpath(posix.dirname(socket), signal);
  });
}

function unlockable(rootDir: string, runtimeDirectory: string | undefined, cause: unknown): unknown {
  if (isConnectionError(cause)) return cause;
  const directory = `--root-dir ${JSON.stringify(rootDir)}`;
  if (cause instanceof SupersededError)
    return new TargetError(
      "Superseded",
      "failed_precondition",
      `another replica of graftlet serves this node: ${cause.message}`,
      {
        cause,
      },
    );
  if (cause instanceof LockHeldError)
    return cause.path === runtimeDirectory
      ? runtimeInUse(
          `the container runtime in ${cause.path} on the target is in use by another graftlet (RuntimeInUse): stop that one, or let all of them share it (sharing: shared); nodes that do not share a runtime delete each other's pods`,
          cause,
        )
      : runtimeInUse(
          `${directory} is in use by another graftlet (RuntimeInUse): stop that one, or use another directory`,
          cause,
        );
  return new TargetError(
    "RootDirUnusable",
    codeOf(cause),
    hasCode(cause, "not_found")
      ? `${directory} cannot be locked: the target has no flock program; install util-linux or busybox on it`
      : `${directory} cannot be locked (${messageOf(cause)}): use a directory on a file system that supports locks`,
    { cause },
  );
}
