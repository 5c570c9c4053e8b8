import { posix } from "node:path";
import { PartError, bindParts } from "../host/bind-part.ts";
import { CodedError } from "../lib/errors.ts";
import type { MountedVolume, VolumePart, VolumeParts } from "../pipeline.ts";
import type { VolumeDeps } from "./kinds/kind.ts";
import { podDirectory } from "./paths.ts";

/** subPath mounts: bind mounts below the pod's directory, as the kubelet makes them, unmounted together with the volumes.
 *  @param mounted volumes of a pod, by its UID.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#using-subpath */
export function createParts(
  { host, rootDir, log }: Pick<VolumeDeps, "host" | "rootDir" | "log">,
  mounted: (uid: string) => ReadonlyMap<string, MountedVolume>,
): VolumeParts {
  return {
    async bindParts(pod, containerName, parts, signal) {
      if (parts.length === 0) return new Map<number, string>();
      const { uid } = pod.metadata;
      const bindings = parts.map((part) => {
        const { hostPath, persistent } = volumeOf(mounted(uid), part, containerName);
        // For a claim, the directory is named after the persistent volume.
        const name = persistent?.name ?? part.volume;
        const target = `${podDirectory(rootDir, uid)}/volume-subpaths/${name}/${containerName}/${part.index}`;
        return { base: hostPath, below: withinVolume(part.subPath), target };
      });
      try {
        await bindParts(host, bindings, signal);
      } catch (error) {
        if (!(error instanceof PartError)) throw error;
        const { volume } = parts[error.index] ?? { volume: "" };
        log.warn({ err: error, uid, container: containerName, volume }, "cannot bind-mount subPath");
        // The details mention paths of the host, which the pod must not see.
        const what = error.step === "create" ? "create subPath directory" : "prepare subPath";
        const message = `failed to ${what} for volumeMount "${volume}" of container "${containerName}"`;
        throw new CodedError(error.code, message, { cause: error });
      }
      return new Map(parts.map(({ index }, at) => [index, bindings[at]?.target ?? ""]));
    },
  };
}

function volumeOf(
  mounted: ReadonlyMap<string, MountedVolume>,
  { volume }: VolumePart,
  containerName: string,
): MountedVolume {
  const found = mounted.get(volume);
  if (found) return found;
  throw new CodedError("not_found", `cannot find volume "${volume}" to mount into container "${containerName}"`);
}

/** Normalized subPath, without empty elements and dots. */
function withinVolume(subPath: string): string {
  return posix
    .normalize(subPath)
    .split("/")
    .filter((name) => name !== "" && name !== ".")
    .join("/");
}
