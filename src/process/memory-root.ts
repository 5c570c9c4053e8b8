import type { NodeConfig } from "../config/node-config.ts";
import { isInMemory, mountOf } from "../host/mounts.ts";
import { readOwnershipRecord } from "../host/ownership-record.ts";
import { codeOf, hasCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { type Target, TargetError } from "../seams/provider.ts";

export interface MemoryRootDeps {
  readonly target: Pick<Target, "host" | "link">;
  readonly log: Logger;
}

/** Refuses a root directory in memory on a remote target, where it is usually a mistake: an appliance such as a NAS has its root
 *  file system in memory, and its data volume is mounted elsewhere. Pods' volumes would fill the memory, and be lost when the
 *  machine restarts. If the node already has its record there, only a warning is logged. A local root directory is not checked,
 *  as by the kubelet.
 *  @throws TargetError RootDirUnusable, one sentence; unavailable and deadline_exceeded like the host. */
export async function refuseMemoryRoot(
  { target: { host, link }, log }: MemoryRootDeps,
  { nodeName, rootDir }: Pick<NodeConfig, "nodeName" | "rootDir">,
  signal: AbortSignal,
): Promise<void> {
  if (!link) return;
  const mount = await mountOf(host, rootDir, signal).catch((error: unknown) => {
    if (hasCode(error, "unavailable", "deadline_exceeded", "cancelled")) throw error;
    log.info({ err: error, code: codeOf(error) }, "cannot find the root directory's file system; not checking it");
    return undefined;
  });
  if (!mount || !isInMemory(mount)) return;
  const record = await readOwnershipRecord(host.fs, rootDir, signal);
  const where = `--root-dir ${JSON.stringify(rootDir)} is in the target's memory (${mount.fsType} at ${mount.path})`;
  if (record?.node === nodeName) return log.warn({}, `${where}: pods' volumes fill it, and are lost when it restarts`);
  throw new TargetError(
    "RootDirUnusable",
    "failed_precondition",
    `${where}, where pods' volumes would fill it and be lost when it restarts: set rootDir to a directory on a disk, such as the data volume`,
  );
}
