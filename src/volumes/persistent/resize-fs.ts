import { CodedError, codeOf, messageOf } from "../../lib/errors.ts";
import type { SetUpDeps } from "../plugins/plugin.ts";
import { diskFormatOf, fsToolTimeoutMs } from "./block-device.ts";
import { type Argv, command } from "../../seams/command.ts";

/** A device, and where its file system is mounted. */
export interface MountedDevice {
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
export async function resizeFileSystem({ host }: Pick<SetUpDeps, "host">, mounted: MountedDevice): Promise<void> {
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
  // Never interrupted: a half-done resize is worse than a late one.
  const { code, stdout, stderr } = await host.run(argv, { timeoutMs: fsToolTimeoutMs }).catch((error: unknown) => {
    throw fail(messageOf(error), "", error);
  });
  if (code !== 0) throw fail(`exit status ${code}`, `${stdout}${stderr}`);
}
