import { ignoreCode } from "../lib/errors.ts";
import type { HostFs } from "../seams/host.ts";

/** SELinux labels of containers' processes and files on a target, without categories; empty if its policy defines none. */
export interface ContainerLabels {
  readonly process: string;
  readonly file: string;
}

const maxBytes = 256 * 1024;

/** Reads the labels that the target's policy defines for containers.
 *  @see https://manpages.debian.org/bookworm/selinux-utils/selinux_lxc_contexts_path.3.en.html */
export async function readContainerLabels(fs: Pick<HostFs, "readFile">, signal: AbortSignal): Promise<ContainerLabels> {
  const read = async (path: string) =>
    (await ignoreCode(fs.readFile(path, { maxBytes, signal }), "not_found", "permission_denied"))?.toString("utf8");
  const ofPolicy = async () => {
    const type = settingsIn((await read("/etc/selinux/config")) ?? "").get("SELINUXTYPE") ?? "";
    return read(`/etc/selinux/${type}/contexts/lxc_contexts`);
  };
  const labels = settingsIn((await read("/usr/share/containers/selinux/contexts")) ?? (await ofPolicy()) ?? "");
  return { process: labels.get("process") ?? "", file: labels.get("file") ?? "" };
}

/** Lines `key = "value"`; others are ignored, and so are comments. */
function settingsIn(text: string): ReadonlyMap<string, string> {
  return new Map(
    text.split("\n").flatMap((line) => {
      const [, key, value] = /^\s*([^;#=\s][^=]*?)\s*=\s*"*([^"]*?)"*\s*$/.exec(line) ?? [];
      return key !== undefined && value !== undefined ? [[key, value] as const] : [];
    }),
  );
}
