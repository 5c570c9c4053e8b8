import { boundedLines } from "../../../src/lib/bounded-text.ts";
import { hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import { inspectOwn, listOwn } from "../container/own.ts";
import { sandboxType } from "../container/names.ts";
import type { DockerParts } from "../parts.ts";
import { engineInfo } from "./engine-info.ts";

type Parts = Pick<DockerParts, "docker" | "nodeName" | "host">;

/** The driver type of an engine whose images and writable layers are containerd's. */
const snapshotterType = "io.containerd.snapshotter.v1";

/** A table of mounts has a line for each of a container's mounts, which for an overlay lists its layers. */
const maxTableBytes = 1024 * 1024;

/** The directory on the target in which an engine keeps images and writable layers: its data directory, or that of containerd if it uses
 *  containerd's image store. The engine does not report the latter, so a running sandbox's root file system does, which is read once; until
 *  there is one whose mounts the login may read, it is the data directory. */
export function createLayersDirectory(parts: Parts): (signal: AbortSignal) => Promise<string> {
  let found: { readonly engine: string; readonly directory: string } | undefined;
  let unreadable: string | undefined;
  return async (signal) => {
    const { ID, DockerRootDir, DriverStatus } = await engineInfo(parts, signal);
    if (!(DriverStatus ?? []).some(([, value]) => value === snapshotterType)) return DockerRootDir;
    if (found?.engine === ID) return found.directory;
    const sandboxes = await listOwn(parts, sandboxType, {}, signal);
    const running = sandboxes.find(({ State }) => State === "running")?.Id;
    if (running === undefined || running === unreadable) return DockerRootDir;
    try {
      const directory = await snapshotterRoot(parts, running, signal);
      if (directory === undefined) unreadable = running;
      else found = { engine: ID, directory };
      return directory ?? DockerRootDir;
    } catch (error) {
      throwIfAborted(signal);
      if (hasCode(error, "permission_denied")) unreadable = running;
      return DockerRootDir;
    }
  };
}

async function snapshotterRoot(parts: Parts, sandbox: string, signal: AbortSignal): Promise<string | undefined> {
  const { State } = await inspectOwn(parts, sandbox, sandboxType, signal);
  const path = `/proc/${State.Pid}/mountinfo`;
  const table = await parts.host.fs.readFile(path, { maxBytes: maxTableBytes, signal });
  return parseSnapshotterRoot(table.toString("utf8"));
}

/** Parses a container's mounts: the part of its root's `upperdir` before the snapshotter's directory. Undefined if the root is no overlay of a
 *  snapshotter. Pure. @see https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html */
export function parseSnapshotterRoot(table: string): string | undefined {
  const root = boundedLines(table).find((line) => line.split(" ")[4] === "/");
  const [fsType, , options = ""] = root?.split(" - ")[1]?.split(" ") ?? [];
  if (fsType !== "overlay") return undefined;
  return /(?:^|,)upperdir=(\/[^,]*?)\/io\.containerd\.snapshotter\.v1\./.exec(options)?.[1];
}
