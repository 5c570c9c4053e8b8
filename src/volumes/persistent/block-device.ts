import { isMountPoint } from "../../host/mounts.ts";
import { CodedError, codeOf, hasCode, messageOf, ignoreNotFound } from "../../lib/errors.ts";
import type { PersistentVolume } from "../../objects.ts";
import { volumeReference } from "../../pod/reference.ts";
import type { SetUpDeps } from "../plugins/plugin.ts";
import { mount } from "./bind-mount.ts";
import { type Option, command, commandWithoutDashes } from "../../seams/command.ts";

/** A block device with a file system, and where to mount it. */
export interface DeviceMount {
  readonly device: string;
  readonly at: string;
  /** Type of the file system; empty means ext4. */
  readonly fsType: string;
  readonly options: readonly string[];
}

export class DeviceMountError extends CodedError {
  /** The device has another file system than the volume specifies, and cannot be mounted as that type. */
  readonly isMismatch: boolean;
  constructor(message: string, { cause, isMismatch }: { readonly cause: unknown; readonly isMismatch: boolean }) {
    super(codeOf(cause), message, { cause });
    this.name = "DeviceMountError";
    this.isMismatch = isMismatch;
  }
}

/** Timeout of creating, checking or resizing a file system. The commands are not interrupted earlier, as that could damage it. */
export const fsToolTimeoutMs = 600_000;
const directoryMode = 0o750;

/** Mounts a device unless it is mounted already. A blank device is formatted; existing content is checked and never formatted.
 *  @throws DeviceMountError in the kubelet's words.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#local */
export async function mountDevice(deps: SetUpDeps, wanted: DeviceMount, signal: AbortSignal): Promise<void> {
  const { host, mounts } = deps;
  const { device, at, fsType, options } = wanted;
  if (await ignoreNotFound(isMountPoint(host, at, signal, mounts))) return;
  await host.fs.apply([{ kind: "mkdir", path: at, mode: directoryMode, parents: true }], signal);
  const made = { ...wanted, fsType: fsType || "ext4" };
  let isMismatch = false;
  try {
    isMismatch = (await formatOrCheck(deps, made)) !== made.fsType;
    const choices = [...options, "defaults"].join(",");
    await mount(
      host,
      {
        options: [
          ["-t", made.fsType],
          ["-o", choices],
        ],
        operands: [device, at],
      },
      signal,
    );
  } catch (error) {
    await host.fs.apply([{ kind: "remove", path: at }]).catch(() => undefined);
    // If the target is unreachable, the state of its devices is unknown.
    const isKnown = hasCode(error, "failed_precondition");
    throw new DeviceMountError(messageOf(error), { cause: error, isMismatch: isMismatch && isKnown });
  }
}

/** Also reports the mismatch on the PersistentVolume, whose author has to fix it. (kubelet, checkForFailedMount) */
export function reportMismatch(
  { events }: Pick<SetUpDeps, "events">,
  volume: PersistentVolume,
  { message }: DeviceMountError,
): void {
  // An inline volume has no PersistentVolume object.
  if (!volume.spec?.claimRef) return;
  const text = `MountVolume failed for volume ${JSON.stringify(volume.metadata.name)} ${message}`;
  events.event(volumeReference(volume), "Warning", "FailedMountOnFilesystemMismatch", text);
}

/** Formats a blank device; checks an existing file system. @returns the file system that the device has now. */
async function formatOrCheck(deps: SetUpDeps, { device, at, fsType, options }: DeviceMount): Promise<string> {
  const { host, log } = deps;
  const isReadOnly = options.includes("ro");
  const found = await diskFormatOf(deps, device);
  if (found !== "") {
    if (found !== fsType)
      log.warn({ device, found, wanted: fsType }, "device has a different file system than its volume specifies");
    if (!isReadOnly) await runFsck(deps, device);
    return found;
  }
  if (isReadOnly)
    throw new CodedError(
      "failed_precondition",
      `cannot mount unformatted disk ${device} as we are manipulating it in read-only mode`,
    );
  log.info({ device, fsType }, "formatting empty device");
  const { code, stdout, stderr } = await host.run(command(`mkfs.${fsType}`, formatOptions(fsType), [device]), {
    timeoutMs: fsToolTimeoutMs,
  });
  if (code === 0) return fsType;
  throw new CodedError(
    "failed_precondition",
    `format of disk ${JSON.stringify(device)} failed: type:(${JSON.stringify(fsType)}) target:(${JSON.stringify(at)}) options:(${JSON.stringify([...options, "defaults"].join(","))}) errcode:(exit status ${code}) output:(${stdout}${stderr}) `,
  );
}

/** Options for formatting without prompts and without reserved blocks. */
function formatOptions(fsType: string): readonly Option[] {
  if (fsType === "ext4" || fsType === "ext3") return ["-F", "-m0"];
  return fsType === "xfs" ? ["-f"] : [];
}

/** Content of a device: the type of its file system, a description of other content, or empty if it is blank. An ambiguous
 *  answer is a failure: only a device known to be blank may be formatted.
 *  @throws failed_precondition in the kubelet's words. */
export async function diskFormatOf({ host }: Pick<SetUpDeps, "host">, device: string): Promise<string> {
  const nothingFound = 2;
  const argv = command("blkid", ["-p", ["-s", "TYPE"], ["-s", "PTTYPE"], ["-o", "export"]], [device]);
  const { code, stdout, stderr } = await host.run(argv, { timeoutMs: fsToolTimeoutMs });
  if (code === nothingFound) return "";
  const fail = (why: string) =>
    new CodedError("failed_precondition", `failed to get disk format of disk ${device}: ${why}`);
  if (code !== 0) throw fail(stderr.trim() || `exit status ${code}`);
  const values = new Map<string, string>();
  for (const line of stdout.split("\n").filter((text) => text !== "")) {
    const [name, value, ...more] = line.split("=");
    if (name === undefined || value === undefined || more.length > 0)
      throw fail(`blkid returns invalid output: ${stdout}`);
    values.set(name, value);
  }
  if (values.has("PTTYPE")) return "unknown data, probably partitions";
  const type = values.get("TYPE");
  if (type === undefined || type === "") throw fail("blkid reported no type");
  return type;
}

/** Runs fsck, which repairs what it can without prompts. */
async function runFsck({ host, log }: SetUpDeps, device: string): Promise<void> {
  const uncorrected = 4;
  const ran = await ignoreNotFound(
    host.run(commandWithoutDashes("fsck", ["-a"], [device]), { timeoutMs: fsToolTimeoutMs }),
  );
  if (ran === undefined)
    return log.warn({ device }, "fsck not found on the target; mounting the file system unchecked");
  if (ran.code === uncorrected)
    throw new CodedError(
      "failed_precondition",
      `'fsck' found errors on device ${device} but could not correct them: ${ran.stdout}${ran.stderr}`,
    );
  if (ran.code !== 0) log.warn({ device, code: ran.code, output: ran.stderr.trim() }, "fsck reported problems");
}
