import { CodedError } from "../../lib/errors.ts";
import type { Pod } from "../../objects.ts";
import { podReference } from "../../pod/reference.ts";
import { groupOf } from "../group.ts";
import type { SetUpDeps } from "../kinds/kind.ts";
import { script } from "../../seams/command.ts";

/** Rights of the group at the root: to read, write and search. */
const needed = 0o770;
const setGid = 0o2000;
/** A volume may have very many files: the longest time for them, and when an event tells that it takes long, milliseconds. */
const longestMs = 24 * 3_600_000;
const slowMs = 30_000;

type GroupDeps = Pick<SetUpDeps, "host" | "clock" | "events" | "log">;

/** Gives a volume's whole tree to the pod's fsGroup, if any, as a kubelet does: files readable and writable, directories also
 *  searchable and with new files in the group; links themselves alone. The root comes last, which tells a later pod that asks for
 *  OnRootMismatch that all is done. What the file system refuses to change stays as it is, as with root squashed on NFS.
 *  @throws failed_precondition when the tree cannot be walked, with the walk's first complaint.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods */
export async function giveTree(deps: GroupDeps, pod: Pod, path: string, signal: AbortSignal): Promise<void> {
  const group = groupOf(pod);
  if (group === undefined) return;
  if (pod.spec.securityContext?.fsGroupChangePolicy === "OnRootMismatch") {
    const { gid, mode } = await deps.host.fs.stat(path, signal);
    if (gid === group && (mode & (needed | setGid)) === (needed | setGid)) return;
  }
  const argv = script(givingTree, path, String(group));
  const slow = deps.clock.after(slowMs, () => tellOfSlowness(deps, pod, path));
  // A try's limit does not hold for it: cut off, it would have to begin anew each time.
  const { code, stderr } = await deps.host.run(argv, { timeoutMs: longestMs }).finally(() => slow.cancel());
  const complaints = stderr.split("\n").filter((line) => line !== "");
  if (code === 0) {
    if (complaints.length > 0) deps.log.warn({ path, group, complaints }, "a volume could not be given to its group");
    return;
  }
  const [complaint = `exit status ${code}`] = complaints;
  throw new CodedError("failed_precondition", `files could not be given to group ${group}: ${complaint}`);
}

function tellOfSlowness({ events }: GroupDeps, pod: Pod, path: string): void {
  const where = path.slice(path.indexOf(pod.metadata.uid));
  const message = `Setting volume ownership for ${where} is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods`;
  events.event(podReference(pod), "Warning", "VolumePermissionChangeInProgress", message);
}

/** Arguments: directory, group. A change of group takes set-id bits from files, which are given back. Only the walk may fail; of what cannot
 *  be changed the root alone is told. POSIX sh, with the programs of findutils and coreutils or busybox. */
const givingTree = `
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
