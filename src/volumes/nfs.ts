import { isIPv6 } from "node:net";
import { listMounts, unmount } from "../host/mounts.ts";
import type { SetUpDeps, VolumeKind } from "./kinds/kind.ts";
import { checkNoLink, podDirectory, podSubdirectory, volumeDirectory } from "./paths.ts";
import { mount } from "./persistent/bind-mount.ts";
import type { PersistentKind } from "./persistent/kind.ts";
import { CodedError } from "../lib/errors.ts";

const plugin = "kubernetes.io/nfs";
const privateMode = 0o750;
/** Longest time of a mount, milliseconds: as long as mount.nfs itself tries to reach a server. */
const longestMs = 122_000;

/** An export of a server, and the place for it in a pod. */
interface Export {
  readonly uid: string;
  /** Name of the volume in its directory. */
  readonly name: string;
  readonly server: string;
  readonly path: string;
  readonly options: readonly string[];
}

/** A directory of an NFS server behind a claim, mounted for each pod by the target's own mount.nfs.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#nfs */
export const persistentNfs: PersistentKind = {
  plugin,
  takesMountOptions: true,
  id: ({ metadata }) => metadata.name,
  stage: async () => "",
  async publish(deps, { pod, volume: { metadata, spec }, readOnly, options }, _staged, signal) {
    const { server, path } = spec?.nfs ?? { server: "", path: "" };
    const all = [...new Set([...options, ...(readOnly ? ["ro"] : [])])].sort();
    const { uid } = pod.metadata;
    const hostPath = await mountExport(deps, { uid, name: metadata.name, server, path, options: all }, signal);
    return { hostPath, space: "remote" };
  },
};

/** A directory of an NFS server that a pod names itself. */
export const nfs: VolumeKind = {
  refreshes: false,
  async setUp(deps, { metadata: { uid } }, { name, nfs: source }, signal) {
    const { server = "", path = "", readOnly = false } = source ?? {};
    const options = readOnly ? ["ro"] : [];
    const hostPath = await mountExport(deps, { uid, name, server, path, options }, signal);
    return { hostPath, readOnly, persistent: { name, plugin, isDevice: false, space: "remote" } };
  },
};

/** Mounts an export, unless it is mounted. A server that does not answer makes every look at the mount wait: the table of mounts is
 *  all that is looked at. @returns where it is. @throws in the kubelet's words. */
async function mountExport(
  deps: SetUpDeps,
  { uid, name, server, path, options }: Export,
  signal: AbortSignal,
): Promise<string> {
  checkExport(server, path);
  const { host, rootDir } = deps;
  const at = volumeDirectory(rootDir, uid, "nfs", name);
  const own = podDirectory(rootDir, uid);
  const isMounted = async (given?: AbortSignal) => {
    const real = at.replace(own, await host.fs.realpath(own, given));
    return (await listMounts(host, given)).some((one) => one.path === real);
  };
  await host.fs.apply([{ do: "mkdir", path: own, mode: privateMode, parents: true }], signal);
  if (await isMounted(signal)) return at;
  await checkNoLink(deps, at, signal);
  await host.fs.apply(podSubdirectory(rootDir, uid, "volumes", { path: at, mode: privateMode }), signal);
  const source = `${isIPv6(server) ? `[${server}]` : server}:${path}`;
  const chosen = options.length > 0 ? [["-o", options.join(",")] as const] : [];
  try {
    await mount(host, { options: [["-t", "nfs"], ...chosen], operands: [source, at] }, signal, longestMs);
  } catch (error) {
    // It may have come about all the same, and a later try begins anew.
    if (await isMounted().catch(() => true)) await unmount(host, at).catch(() => undefined);
    await host.fs.apply([{ do: "remove", path: at }]).catch(() => undefined);
    throw error;
  }
  return at;
}

/** Letters, digits and what host names and addresses have between them, an IPv6 address in brackets or without them; `%` precedes its zone. */
const serverPattern = /^(\[[0-9A-Fa-f:.]+(%[\w.-]+)?\]|[\p{L}\p{N}_:][\p{L}\p{N}_.:%-]*)$/u;

/** Refuses what mount.nfs would take for something else than a server and a directory of it. The API server asks only that a server is named,
 *  and that the path begins with a slash. @throws failed_precondition, a sentence with the field. */
function checkExport(server: string, path: string): void {
  const refuse = (field: string, value: string, what: string) =>
    new CodedError("failed_precondition", `nfs.${field} ${JSON.stringify(value)} is not ${what}`);
  if (!serverPattern.test(server)) throw refuse("server", server, "a host name or an IP address");
  if (!path.startsWith("/")) throw refuse("path", path, "an absolute path");
}
