import { unmount } from "../../host/mounts.ts";
import { CodedError } from "../../lib/errors.ts";
import type { Host } from "../../seams/host.ts";
import { type Option, commandWithoutDashes } from "../../seams/command.ts";

/** Bind-mounts a directory, then runs a follow-up step. If either fails, the mount is undone, so that the next attempt starts
 *  clean.
 *  @param then the follow-up step. @throws failed_precondition if mounting fails, or the error of `then`. */
export async function bindMount(
  host: Host,
  { from, to, options }: { readonly from: string; readonly to: string; readonly options: readonly string[] },
  signal: AbortSignal,
  then: () => Promise<void>,
): Promise<void> {
  try {
    await mount(host, { options: ["--bind"], operands: [from, to] }, signal);
    // The kernel accepts options of a bind mount only in a remount.
    if (options.length > 0) {
      const remount = ["remount", "bind", ...options].join(",");
      await mount(host, { options: [["-o", remount]], operands: [to] }, signal);
    }
    await then();
  } catch (error) {
    await unmount(host, to).catch(() => undefined);
    await host.fs.apply([{ kind: "remove", path: to }]).catch(() => undefined);
    throw error;
  }
}

export interface MountArguments {
  readonly options: readonly Option[];
  /** Source and target; they may come from untrusted specs. */
  readonly operands: readonly string[];
}

/** Runs `mount`. @throws failed_precondition in the kubelet's words, deadline_exceeded after the timeout. */
export async function mount(
  host: Host,
  { options, operands }: MountArguments,
  signal: AbortSignal,
  timeoutMs?: number,
): Promise<void> {
  const limit = timeoutMs === undefined ? {} : { timeoutMs };
  const { code, stderr, stdout } = await host.run(commandWithoutDashes("mount", options, operands), {
    signal,
    ...limit,
  });
  if (code === 0) return;
  const output = `${stderr}${stdout}`.trim();
  throw new CodedError(
    "failed_precondition",
    `mount failed: exit status ${code}\nMounting command: mount\nMounting arguments: ${[...options.flat(), ...operands].join(" ")}\nOutput: ${output}`,
  );
}
