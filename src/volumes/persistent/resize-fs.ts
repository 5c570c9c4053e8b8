import { CodedError, codeOf, messageOf } from "../../lib/errors.ts";
import type { SetUpDeps } from "../kinds/kind.ts";
import { contentOf, longestMs } from "./block-device.ts";
import { type Argv, command } from "../../seams/command.ts";

/** A device, and a place where the file system on it is mounted. */
export interface MountedDevice {
  readonly device: string;
  readonly at: string;
}

/** Programs that make a mounted file system as big as its device. */
const growers: Readonly<Record<string, (mounted: MountedDevice) => Argv>> = {
  ext3: ({ device }) => command("resize2fs", [], [device]),
  ext4: ({ device }) => command("resize2fs", [], [device]),
  xfs: ({ at }) => command("xfs_growfs", ["-d"], [at]),
  btrfs: ({ at }) => command(["btrfs", "filesystem", "resize"], [], ["max", at]),
};

/** Makes a mounted file system as big as its device. One that has that size stays as it is.
 *  @throws CodedError in the kubelet's words. */
export async function resizeFileSystem({ host }: Pick<SetUpDeps, "host">, mounted: MountedDevice): Promise<void> {
  const { device, at } = mounted;
  const format = await contentOf({ host }, device).catch((error: unknown) => {
    const message = `ResizeFS.Resize - error checking format for device ${device}: ${messageOf(error)}`;
    throw new CodedError(codeOf(error), message, { cause: error });
  });
  if (format === "") return;
  const grower = Object.hasOwn(growers, format) ? growers[format] : undefined;
  if (!grower)
    throw new CodedError(
      "unimplemented",
      `ResizeFS.Resize - resize of format ${format} is not supported for device ${device} mounted at ${at}`,
    );
  const argv = grower(mounted);
  const subject = argv.includes(device) ? device : at;
  const fail = (why: string, output: string, cause?: unknown) =>
    new CodedError(
      cause === undefined ? "failed_precondition" : codeOf(cause),
      `resize of device ${subject} failed: ${why}. ${argv[0]} output: ${output}`,
      { cause },
    );
  // Nothing cuts it off: half of it is worse than a late one.
  const { code, stdout, stderr } = await host.run(argv, { timeoutMs: longestMs }).catch((error: unknown) => {
    throw fail(messageOf(error), "", error);
  });
  if (code !== 0) throw fail(`exit status ${code}`, `${stdout}${stderr}`);
}
