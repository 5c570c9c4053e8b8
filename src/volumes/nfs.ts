import { isIPv6 } from "node:net";
import { listMounts, unmount } from "../host/mounts.ts";
import type { SetUpDeps, VolumePlugin } from "./plugins/plugin.ts";
import { checkNoLink, podSubdirectory, volumeDirectory } from "./paths.ts";
import { mount } from "./persistent/bind-mount.ts";
import type { PersistentVolumePlugin } from "./persistent/plugin.ts";
import { CodedError } from "../lib/errors.ts";
import { podDirectory } from "../host/layout.ts";

const pluginName = "kubernetes.io/nfs";
const privateMode = 0o750;
/** Timeout of a mount, milliseconds: mount.nfs itself tries that long to reach a server. */
const mountTimeoutMs = 122_000;

/** An NFS export and where it is mounted for a pod. */
interface Export {
  readonly uid: string;
  /** Name of the volume's directory. */
  readonly name: string;
  readonly server: string;
  readonly path: string;
  readonly options: readonly string[];
}

/** An NFS PersistentVolume, mounted for each pod by the target's mount.nfs.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#nfs */
export const persistentNfs: PersistentVolumePlugin = {
  pluginName,
  supportsMountOptions: true,
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

/** An NFS volume defined inline in the pod. */
export const nfs: VolumePlugin = {
  refreshes: false,
  async setUp(deps, { metadata: { uid } }, { name, nfs: source }, signal) {
    const { server = "", path = "", readOnly = false } = source ?? {};
    const options = readOnly ? ["ro"] : [];
    const hostPath = await mountExport(deps, { uid, name, server, path, options }, signal);
    return { hostPath, readOnly, persistent: { name, plugin: pluginName, isDevice: false, space: "remote" } };
  },
};

/** Mounts an export unless it is mounted already. Checks only the mount table: any access to the mount itself would hang while
 *  the server is unreachable.
 *  @returns the mount point. @throws an error in the kubelet's words. */
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
  await host.fs.apply([{ kind: "mkdir", path: own, mode: privateMode, parents: true }], signal);
  if (await isMounted(signal)) return at;
  await checkNoLink(deps, at, signal);
  await host.fs.apply(podSubdirectory(rootDir, uid, "volumes", { path: at, mode: privateMode }), signal);
  const source = `${isIPv6(server) ? `[${server}]` : server}:${path}`;
  const optionArguments = options.length > 0 ? [["-o", options.join(",")] as const] : [];
  try {
    await mount(host, { options: [["-t", "nfs"], ...optionArguments], operands: [source, at] }, signal, mountTimeoutMs);
  } catch (error) {
    // The mount may have succeeded all the same; unmount it so that the next attempt starts clean.
    if (await isMounted().catch(() => true)) await unmount(host, at).catch(() => undefined);
    await host.fs.apply([{ kind: "remove", path: at }]).catch(() => undefined);
    throw error;
  }
  return at;
}

/** Letters, digits and the punctuation of host names and addresses; an IPv6 address with or without brackets, and with an
 *  optional `%zone`. */
const serverPattern = /^(\[[0-9A-Fa-f:.]+(%[\w.-]+)?\]|[\p{L}\p{N}_:][\p{L}\p{N}_.:%-]*)$/u;

/** Rejects values that mount.nfs would interpret as something other than a server and a directory. The API server only checks
 *  that a server is set and that the path begins with a slash.
 *  @throws failed_precondition, a sentence with the field. */
function checkExport(server: string, path: string): void {
  const refuse = (field: string, value: string, what: string) =>
    new CodedError("failed_precondition", `nfs.${field} ${JSON.stringify(value)} is not ${what}`);
  if (!serverPattern.test(server)) throw refuse("server", server, "a host name or an IP address");
  if (!path.startsWith("/")) throw refuse("path", path, "an absolute path");
}
