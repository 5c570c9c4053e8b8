import { isMountPoint } from "../../host/mounts.ts";
import { localDevicesOf, localVolumeDirectoryOf, podDirectory } from "../../host/layout.ts";
import { CodedError, ignoreNotFound, codeOf, messageOf } from "../../lib/errors.ts";
import { podReference } from "../../pod/reference.ts";
import { VolumeStepError } from "../failure.ts";
import { fsGroupOf } from "../fs-group.ts";
import type { SetUpDeps } from "../plugins/plugin.ts";
import { checkNoLink, podSubdirectory, volumeDirectory } from "../paths.ts";
import { bindMount } from "./bind-mount.ts";
import { DeviceMountError, mountDevice, diskFormatOf, fsToolTimeoutMs, reportMismatch } from "./block-device.ts";
import type { PersistentVolumePlugin, VolumeUse } from "./plugin.ts";
import { applyFSGroup } from "./apply-fs-group.ts";
import { podMountsOf, stagedLocalVolumes, unstageLocalVolume } from "./local-staging.ts";
import { type Argv, command } from "../../seams/command.ts";
import { timed } from "../../lib/timed.ts";
import type { RetainedDirectory, PersistentVolumeUnmounter, UnpublishDeps } from "./unmounter.ts";
import { volumesMappedFor, unmapDevice, unmapOrphans } from "./map-device.ts";

const localPluginName = "kubernetes.io/local-volume";

/** Unstages local volumes: file systems by the mount table alone, block devices by their bind mounts and links. */
const localUnmounter: PersistentVolumeUnmounter = {
  pluginName: localPluginName,
  async unpublish(deps, uid, signal) {
    const links = `${podDirectory(deps.rootDir, uid)}/volumeDevices/kubernetes.io~local-volume`;
    const linked = namesOfKind(deps, links, "symlink", signal);
    const mapped = volumesMappedFor(deps, { all: localDevicesOf(deps.rootDir) }, uid, signal);
    const names = new Set((await Promise.all([linked, mapped])).flat());
    return (await Promise.all([...names].map((name) => unmapOrRetain(deps, uid, name, `${links}/${name}`)))).flat();
  },
  async listStaged(deps, _known, signal) {
    const devices = namesOfKind(deps, localDevicesOf(deps.rootDir), "directory", signal);
    return [...new Set((await Promise.all([stagedLocalVolumes(deps, signal), devices])).flat())];
  },
  async unstage(deps, name, signal) {
    const directory = `${localDevicesOf(deps.rootDir)}/${name}`;
    if ((await ignoreNotFound(deps.host.fs.lstat(directory, signal))) !== undefined) {
      const { clock, measures } = deps;
      if (!(await unmapOrphans(deps, directory, signal))) return false;
      const remove = () => ignoreNotFound(deps.host.fs.apply([{ kind: "remove", path: directory }], signal));
      await timed(clock, remove, (ms, failed) => measures.deviceUnmapped(localPluginName, ms, failed));
    }
    return unstageLocalVolume(deps, name, signal);
  },
};

/** @returns an empty list on success, otherwise the link to keep. */
async function unmapOrRetain(
  deps: UnpublishDeps,
  uid: string,
  name: string,
  link: string,
): Promise<readonly RetainedDirectory[]> {
  try {
    await unmapDevice(deps, `${localDevicesOf(deps.rootDir)}/${name}`, uid);
    await ignoreNotFound(deps.host.fs.apply([{ kind: "remove", path: link }]));
    return [];
  } catch (reason) {
    return [{ path: link, reason }];
  }
}

async function namesOfKind(
  { host }: UnpublishDeps,
  directory: string,
  wanted: "symlink" | "directory",
  signal: AbortSignal,
): Promise<readonly string[]> {
  const found = (await ignoreNotFound(host.fs.list(directory, signal))) ?? [];
  return found.filter(({ kind }) => kind === wanted).map(({ name }) => name);
}

const privateMode = 0o750;

/** A local volume: a directory of the target, or a block device with a file system, which is created if missing. The device is
 *  mounted once for the node, and bind-mounted for each pod, so that a pod's end never affects the others.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#local */
export const persistentLocal: PersistentVolumePlugin = {
  pluginName: localPluginName,
  supportsMountOptions: true,
  id: ({ metadata }) => metadata.name,
  unmounter: localUnmounter,
  async stage(deps, use, signal) {
    const { metadata, spec } = use.volume;
    const { name } = metadata;
    const path = spec?.local?.path ?? "";
    const kind = await pathKind(deps, path, name, signal);
    if (kind === "directory") return path;
    const at = `${localVolumeDirectoryOf(deps.rootDir)}/${name}`;
    await checkNoLink({ host: deps.host }, at, signal);
    const options = use.readOnly ? [...new Set([...use.options, "ro"])].sort() : use.options;
    const fsType = spec?.local?.fsType ?? "ext4";
    await mountDevice(deps, { device: path, at, fsType, options }, signal).catch((error: unknown) => {
      if (!(error instanceof DeviceMountError))
        throw new VolumeStepError("MountVolume.MountDevice failed", name, error);
      const { cause, isMismatch, message } = error;
      const text = `local: failed to mount device ${path} at ${at} (fstype: ${fsType}), error ${message}`;
      const failure = new DeviceMountError(text, { cause, isMismatch });
      if (isMismatch) reportMismatch(deps, use.volume, failure);
      throw new VolumeStepError("MountVolume.MountDevice failed", name, failure);
    });
    return at;
  },
  async publish(deps, use, staged, signal) {
    if (staged.split("/").includes(".."))
      throw new CodedError("invalid_argument", `invalid path: ${staged} must not contain '..'`);
    const { name } = use.volume.metadata;
    const { uid } = use.pod.metadata;
    const path = volumeDirectory(deps.rootDir, uid, "local-volume", name);
    await checkNoLink(deps, path, signal);
    const ready = { hostPath: path, space: "fileSystem" } as const;
    // Also checked for a new pod: two of its volumes may refer to the same claim.
    if (await ignoreNotFound(isMountPoint(deps.host, path, signal, deps.mounts))) return ready;
    const others = fsGroupOf(use.pod) === undefined ? [] : await podMountsOf(deps, staged, signal);
    await warnGroupMismatch(deps, use, { staged, others }, signal);
    await deps.host.fs.apply(podSubdirectory(deps.rootDir, uid, "volumes", { path, mode: privateMode }), signal);
    const options = use.readOnly ? ["ro", ...use.options] : use.options;
    const first = others.length === 0 && !use.readOnly;
    await bindMount(deps.host, { from: staged, to: path, options }, signal, async () => {
      if (first) await applyFSGroup(deps, use.pod, path, signal);
    });
    return ready;
  },
  async setUpDevice({ host, rootDir }, { volume: { metadata, spec } }, signal) {
    const path = spec?.local?.path ?? "";
    const failed = (step: string) => (error: unknown) => {
      throw new VolumeStepError(`MapVolume.${step} failed`, metadata.name, error);
    };
    const real = await host.fs.realpath(path, signal).catch(failed("EvalHostSymlinks"));
    const { kind } = await host.fs.stat(real, signal).catch(failed("MapBlockVolume"));
    if (kind === "blockDevice")
      return { device: real, directory: `${localDevicesOf(rootDir)}/${metadata.name}`, space: "device" };
    return failed("MapBlockVolume")(new CodedError("failed_precondition", `${path} is not a block device`));
  },
  async expand(deps, { pod, volume: { metadata, spec } }, _bytes, signal) {
    // The size of a directory is that of its file system, the size of a block device its own.
    if (spec?.volumeMode === "Block") return;
    const device = spec?.local?.path ?? "";
    const { kind } = await deps.host.fs.stat(device, signal);
    const at = volumeDirectory(deps.rootDir, pod.metadata.uid, "local-volume", metadata.name);
    if (kind === "blockDevice") return resizeFileSystem(deps, { device, at });
    if (kind !== "directory")
      throw new CodedError("failed_precondition", "only directory and block device are supported");
  },
};

async function pathKind({ host }: SetUpDeps, path: string, name: string, signal: AbortSignal) {
  const refuse = (why: string) =>
    new VolumeStepError(
      "MountVolume.NewMounter initialization failed",
      name,
      new CodedError("failed_precondition", why),
    );
  if (path === "") throw refuse("local volume source is nil or local path is not set");
  const found = await ignoreNotFound(host.fs.stat(path, signal));
  if (!found) throw refuse(`path ${JSON.stringify(path)} does not exist`);
  if (found.kind !== "directory" && found.kind !== "blockDevice")
    throw refuse("only directory and block device are supported");
  return found.kind;
}

/** Emits a warning event if other pods use the volume with a different group, which the volume keeps. */
async function warnGroupMismatch(
  { host, events }: SetUpDeps,
  { pod, volume }: VolumeUse,
  { staged, others }: { readonly staged: string; readonly others: readonly string[] },
  signal: AbortSignal,
): Promise<void> {
  const group = fsGroupOf(pod);
  if (group === undefined || others.length === 0) return;
  const { gid } = await host.fs.stat(staged, signal);
  if (gid === group) return;
  const message = `The requested fsGroup is ${group}, but the volume ${volume.metadata.name} has GID ${gid}. The volume may not be shareable.`;
  events.event(podReference(pod), "Warning", "AlreadyMountedVolume", message);
}

/** A device, and where its file system is mounted. */
interface MountedDevice {
  readonly device: string;
  readonly at: string;
}

/** Commands that grow a mounted file system to the size of its device. */
const resizeCommands: Readonly<Record<string, (mounted: MountedDevice) => Argv>> = {
  ext3: ({ device }) => command("resize2fs", [], [device]),
  ext4: ({ device }) => command("resize2fs", [], [device]),
  xfs: ({ at }) => command("xfs_growfs", ["-d"], [at]),
  btrfs: ({ at }) => command(["btrfs", "filesystem", "resize"], [], ["max", at]),
};

/** Grows a mounted file system to the size of its device; does nothing if it already has that size.
 *  @throws CodedError in the kubelet's words. */
async function resizeFileSystem({ host }: Pick<SetUpDeps, "host">, mounted: MountedDevice): Promise<void> {
  const { device, at } = mounted;
  const format = await diskFormatOf({ host }, device).catch((error: unknown) => {
    const message = `ResizeFS.Resize - error checking format for device ${device}: ${messageOf(error)}`;
    throw new CodedError(codeOf(error), message, { cause: error });
  });
  if (format === "") return;
  const resizeCommand = Object.hasOwn(resizeCommands, format) ? resizeCommands[format] : undefined;
  if (!resizeCommand)
    throw new CodedError(
      "unimplemented",
      `ResizeFS.Resize - resize of format ${format} is not supported for device ${device} mounted at ${at}`,
    );
  const argv = resizeCommand(mounted);
  const subject = argv.includes(device) ? device : at;
  const fail = (why: string, output: string, cause?: unknown) =>
    new CodedError(
      cause === undefined ? "failed_precondition" : codeOf(cause),
      `resize of device ${subject} failed: ${why}. ${argv[0]} output: ${output}`,
      { cause },
    );
  // Not interrupted earlier, as that could damage the file system.
  const { code, stdout, stderr } = await host.run(argv, { timeoutMs: fsToolTimeoutMs }).catch((error: unknown) => {
    throw fail(messageOf(error), "", error);
  });
  if (code !== 0) throw fail(`exit status ${code}`, `${stdout}${stderr}`);
}
