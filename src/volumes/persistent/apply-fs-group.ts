import { CodedError } from "../../lib/errors.ts";
import type { Pod } from "../../objects.ts";
import { podReference } from "../../pod/reference.ts";
import { fsGroupOf } from "../fs-group.ts";
import type { SetUpDeps } from "../plugins/plugin.ts";
import { script } from "../../seams/command.ts";

/** Required permissions of the group at the root: read, write and search. */
const requiredGroupMode = 0o770;
const setGid = 0o2000;
/** A volume may have very many files: timeout of the walk, and the delay after which an event reports a slow one, milliseconds. */
const walkTimeoutMs = 24 * 3_600_000;
const slowWarningDelayMs = 30_000;

type GroupDeps = Pick<SetUpDeps, "host" | "clock" | "events" | "log">;

/** Gives a volume's whole tree to the pod's fsGroup, as the kubelet does: files become readable and writable, directories also
 *  searchable and setgid; for symbolic links only the links themselves change. The root is changed last, which tells later pods
 *  with OnRootMismatch that the walk is complete. Changes that the file system refuses are skipped, as with root squashing on
 *  NFS.
 *  @throws failed_precondition if the tree cannot be walked, with the first error.
 *  @see
 *  https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods */
export async function applyFSGroup(deps: GroupDeps, pod: Pod, path: string, signal: AbortSignal): Promise<void> {
  const group = fsGroupOf(pod);
  if (group === undefined) return;
  if (pod.spec.securityContext?.fsGroupChangePolicy === "OnRootMismatch") {
    const { gid, mode } = await deps.host.fs.stat(path, signal);
    if (gid === group && (mode & (requiredGroupMode | setGid)) === (requiredGroupMode | setGid)) return;
  }
  const argv = script(applyFSGroupScript, path, String(group));
  const slow = deps.clock.after(slowWarningDelayMs, () => reportSlowness(deps, pod, path));
  // The timeout of the attempt does not apply: an interrupted walk would have to start over each time.
  const { code, stderr } = await deps.host.run(argv, { timeoutMs: walkTimeoutMs }).finally(() => slow.cancel());
  const complaints = stderr.split("\n").filter((line) => line !== "");
  if (code === 0) {
    if (complaints.length > 0)
      deps.log.warn({ path, group, complaints }, "cannot apply fsGroup to a volume completely");
    return;
  }
  const [complaint = `exit status ${code}`] = complaints;
  throw new CodedError("failed_precondition", `cannot change the group of files to ${group}: ${complaint}`);
}

function reportSlowness({ events }: GroupDeps, pod: Pod, path: string): void {
  const where = path.slice(path.indexOf(pod.metadata.uid));
  const message = `Setting volume ownership for ${where} is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods`;
  events.event(podReference(pod), "Warning", "VolumePermissionChangeInProgress", message);
}

/** Arguments: directory, group. Changing the group clears set-id bits of files, which are restored. Only the walk itself may
 *  fail; of changes that are refused, only the root's is reported. POSIX sh, with findutils and coreutils or busybox. */
const applyFSGroupScript = `
export group="$2"
find "$1" -mindepth 1 -type f -perm /6000 -exec sh -c '
  for file; do
    mode=$(stat -c %a "$file") || exit 1
    chown -h ":$group" "$file" 2>/dev/null
    chmod "$mode" "$file" 2>/dev/null
  done
  :' sh {} + &&
find "$1" -mindepth 1 ! \\( -type f -perm /6000 \\) -exec sh -c 'chown -h ":$group" "$@" 2>/dev/null || :' sh {} + &&
find "$1" -mindepth 1 ! -type l ! -type d -exec sh -c 'chmod ug+rw "$@" 2>/dev/null || :' sh {} + &&
find "$1" -mindepth 1 -type d -exec sh -c 'chmod ug+rwx,g+s "$@" 2>/dev/null || :' sh {} + || exit 1
chown -h ":$group" "$1"
chmod ug+rwx,g+s "$1"
:
`;
