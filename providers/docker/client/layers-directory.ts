import { boundedLines } from "../../../src/lib/bounded-text.ts";
import { hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import { inspectOwn, listOwn } from "../container/own.ts";
import { sandboxType } from "../container/names.ts";
import type { DockerParts } from "../parts.ts";
import { engineInfo } from "./engine-info.ts";

type Parts = Pick<DockerParts, "docker" | "nodeName" | "host">;

/** Driver type of an engine that uses containerd's image store. */
const snapshotterType = "io.containerd.snapshotter.v1";

/** Maximum size of a container's mount table: it has a line for each mount, which for an overlay lists all layers. */
const maxTableBytes = 1024 * 1024;

/** The directory on the target in which an engine keeps images and writable layers. */
export interface LayersDirectory {
  readonly path: string;
  /** True until a sandbox shows where the directory is: it may then be another. */
  readonly isProvisional: boolean;
}

/** Finds the directory on the target in which an engine keeps images and writable layers: its data directory, or containerd's if
 *  it uses containerd's image store. The engine does not report containerd's directory, so it is read once from the root mount of
 *  a running sandbox. Until there is a sandbox whose mount table can be read, the result is the engine's data directory. */
export function createLayersDirectory(parts: Parts): (signal: AbortSignal) => Promise<LayersDirectory> {
  let found: { readonly engine: string; readonly directory: string } | undefined;
  let unreadable: string | undefined;
  return async (signal) => {
    const { ID, DockerRootDir, DriverStatus } = await engineInfo(parts, signal);
    if (!(DriverStatus ?? []).some(([, value]) => value === snapshotterType)) return known(DockerRootDir);
    if (found?.engine === ID) return known(found.directory);
    const sandboxes = await listOwn(parts, sandboxType, {}, signal);
    const running = sandboxes.find(({ State }) => State === "running")?.Id;
    if (running === undefined) return { path: DockerRootDir, isProvisional: true };
    if (running === unreadable) return known(DockerRootDir);
    try {
      const directory = await snapshotterRoot(parts, running, signal);
      if (directory === undefined) unreadable = running;
      else found = { engine: ID, directory };
      return known(directory ?? DockerRootDir);
    } catch (error) {
      throwIfAborted(signal);
      const isDenied = hasCode(error, "permission_denied");
      if (isDenied) unreadable = running;
      return { path: DockerRootDir, isProvisional: !isDenied };
    }
  };
}

function known(path: string): LayersDirectory {
  return { path, isProvisional: false };
}

async function snapshotterRoot(parts: Parts, sandbox: string, signal: AbortSignal): Promise<string | undefined> {
  const { State } = await inspectOwn(parts, sandbox, sandboxType, signal);
  const path = `/proc/${State.Pid}/mountinfo`;
  const table = await parts.host.fs.readFile(path, { maxBytes: maxTableBytes, signal });
  return parseSnapshotterRoot(table.toString("utf8"));
}

/** Parses a container's mount table and returns containerd's directory: the part of the root mount's `upperdir` before the
 *  snapshotter's directory. Undefined if the root is not a snapshotter's overlay. Pure.
 *  @see https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html */
function parseSnapshotterRoot(table: string): string | undefined {
  const root = boundedLines(table).find((line) => line.split(" ")[4] === "/");
  const [fsType, , options = ""] = root?.split(" - ")[1]?.split(" ") ?? [];
  if (fsType !== "overlay") return undefined;
  return /(?:^|,)upperdir=(\/[^,]*?)\/io\.containerd\.snapshotter\.v1\./.exec(options)?.[1];
}
