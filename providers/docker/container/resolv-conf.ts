import type { ContainerInspectInfo } from "dockerode";
import type { DNSConfig } from "../../../src/gen/cri.ts";
import { hasCode } from "../../../src/lib/errors.ts";
import type { DockerParts } from "../parts.ts";

/** Sets the pod's resolver. Docker points containers on a user-defined network at its own resolver, in a resolv.conf shared by all
 *  containers in the sandbox's network namespace; that file is overwritten in place unless it is correct already. Without write access
 *  Docker's resolver stays, which forwards to the sandbox's servers.
 *  @param dns as given to RunPodSandbox; nothing changes without it.
 *  @param sandbox `unread` if no container reads the file yet. */
export async function ensureResolvConf(
  { host, log }: Pick<DockerParts, "host" | "log">,
  sandbox: Pick<ContainerInspectInfo, "Id" | "ResolvConfPath"> & { readonly unread?: boolean },
  dns: DNSConfig | undefined,
  signal: AbortSignal,
): Promise<void> {
  const path = sandbox.ResolvConfPath;
  if (!dns || !path) return;
  const wanted = resolvConf(dns);
  try {
    if (sandbox.unread || (await host.fs.readFile(path, { signal })).toString() !== wanted)
      await host.fs.apply([{ kind: "write", path, data: wanted, mode: 0o644 }], signal);
  } catch (error) {
    if (!hasCode(error, "permission_denied")) throw error;
    log.warn({ err: error, sandbox: sandbox.Id, path }, "cannot write resolv.conf; using Docker's resolver");
  }
}

/** @see https://man7.org/linux/man-pages/man5/resolv.conf.5.html */
export function resolvConf({ servers, searches, options }: DNSConfig): string {
  return [
    ...(searches.length > 0 ? [`search ${searches.join(" ")}`] : []),
    ...servers.map((server) => `nameserver ${server}`),
    ...(options.length > 0 ? [`options ${options.join(" ")}`] : []),
  ]
    .map((line) => `${line}\n`)
    .join("");
}
