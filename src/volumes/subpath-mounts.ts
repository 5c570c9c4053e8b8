import { posix } from "node:path";
import type { SubPathMounts } from "../runtime/ports.ts";
import { SubPathError, bindSubPaths } from "../host/bind-subpath.ts";
import { CodedError } from "../lib/errors.ts";
import type { MountedVolume, SubPathMount } from "../pipeline.ts";
import type { VolumeDeps } from "./plugins/plugin.ts";
import { podDirectory } from "../host/layout.ts";

/** Longest path and longest name that the kernel opens, bytes. @see https://man7.org/linux/man-pages/man0/limits.h.0p.html */
const [maxPathBytes, maxNameBytes] = [4095, 255];

/** subPath mounts: bind mounts below the pod's directory, as the kubelet makes them, unmounted together with the volumes.
 *  @param mounted volumes of a pod, by its UID.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#using-subpath */
export function createSubPathMounts(
  { host, rootDir, log }: Pick<VolumeDeps, "host" | "rootDir" | "log">,
  mounted: (uid: string) => ReadonlyMap<string, MountedVolume>,
): SubPathMounts {
  return {
    async bindSubPaths(pod, containerName, parts, signal) {
      if (parts.length === 0) return new Map<number, string>();
      const { uid } = pod.metadata;
      const bindings = parts.map((part) => {
        const { hostPath, persistent } = mountedVolume(mounted(uid), part, containerName);
        // For a claim, the directory is named after the persistent volume, whose name may be a path for an in-tree type.
        const name = (persistent?.name ?? part.volume).replaceAll("/", "~");
        const target = `${podDirectory(rootDir, uid)}/volume-subpaths/${name}/${containerName}/${part.index}`;
        const below = normalizedSubPath(part.subPath);
        if (isTooLong(hostPath, below)) {
          const message = "subPath exceeds the kernel's path length limit";
          log.warn({ uid, container: containerName, volume: part.volume }, message);
          throw new CodedError("failed_precondition", failureOf("prepare subPath", part, containerName));
        }
        return { base: hostPath, below, target };
      });
      try {
        await bindSubPaths(host, bindings, signal);
      } catch (error) {
        if (!(error instanceof SubPathError)) throw error;
        const failed = parts[error.index] ?? { volume: "" };
        const { volume } = failed;
        log.warn({ err: error, uid, container: containerName, volume }, "cannot bind-mount subPath");
        // The details mention paths of the host, which the pod must not see.
        const what = error.step === "create" ? "create subPath directory" : "prepare subPath";
        throw new CodedError(error.code, failureOf(what, failed, containerName), { cause: error });
      }
      return new Map(parts.map(({ index }, at) => [index, bindings[at]?.target ?? ""]));
    },
  };
}

/** Error text as in the kubelet. */
function failureOf(what: string, { volume }: Pick<SubPathMount, "volume">, containerName: string): string {
  return `failed to ${what} for volumeMount "${volume}" of container "${containerName}"`;
}

/** True if the path, or one of its names, exceeds the kernel's length limits, so that no process could open it as a whole. */
function isTooLong(base: string, below: string): boolean {
  if (Buffer.byteLength(`${base}/${below}`) > maxPathBytes) return true;
  return below.split("/").some((name) => Buffer.byteLength(name) > maxNameBytes);
}

function mountedVolume(
  mounted: ReadonlyMap<string, MountedVolume>,
  { volume }: SubPathMount,
  containerName: string,
): MountedVolume {
  const found = mounted.get(volume);
  if (found) return found;
  throw new CodedError("not_found", `cannot find volume "${volume}" to mount into container "${containerName}"`);
}

/** Normalized subPath, without empty elements and dots. */
function normalizedSubPath(subPath: string): string {
  return posix
    .normalize(subPath)
    .split("/")
    .filter((name) => name !== "" && name !== ".")
    .join("/");
}
