import { CodedError } from "../../lib/errors.ts";
import type { Pod } from "../../objects.ts";
import { podReference } from "../../pod/reference.ts";
import { groupOf } from "../group.ts";
import type { SetUpDeps } from "../kinds/kind.ts";

/** Rights of the group at the root: to read, write and search. */
const needed = 0o770;
const setGid = 0o2000;
/** A volume may have very many files: the longest time for them, and when an event tells that it takes long, milliseconds. */
const longestMs = 24 * 3_600_000;
const slowMs = 30_000;

type GroupDeps = Pick<SetUpDeps, "host" | "clock" | "events">;

/** Gives a volume's whole tree to the pod's fsGroup, if any, as a kubelet does: files readable and writable, directories also
 *  searchable and with new files in the group; links themselves alone. The root comes last, which tells a later pod that asks for
 *  OnRootMismatch that all is done.
 *  @throws failed_precondition with the first of the command's complaints.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods */
export async function giveTree(deps: GroupDeps, pod: Pod, path: string, signal: AbortSignal): Promise<void> {
  const group = groupOf(pod);
  if (group === undefined) return;
  if (pod.spec.securityContext?.fsGroupChangePolicy === "OnRootMismatch") {
    const { gid, mode } = await deps.host.fs.stat(path, signal);
    if (gid === group && (mode & (needed | setGid)) === (needed | setGid)) return;
  }
  const argv = ["sh", "-c", script, "sh", path, String(group)];
  const slow = deps.clock.after(slowMs, () => tellOfSlowness(deps, pod, path));
  // A try's limit does not hold for it: cut off, it would have to begin anew each time.
  const { code, stderr } = await deps.host.run(argv, { timeoutMs: longestMs }).finally(() => slow.cancel());
  if (code === 0) return;
  const [complaint = `exit status ${code}`] = stderr.trim().split("\n");
  throw new CodedError("failed_precondition", `files could not be given to group ${group}: ${complaint}`);
}

function tellOfSlowness({ events }: GroupDeps, pod: Pod, path: string): void {
  const where = path.slice(path.indexOf(pod.metadata.uid));
  const message = `Setting volume ownership for ${where} is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods`;
  events.event(podReference(pod), "Warning", "VolumePermissionChangeInProgress", message);
}

/** Arguments: directory, group. A change of group takes set-id bits from files, which are given back. POSIX sh, with the programs of
 *  findutils and coreutils or busybox. */
const script = `
export group="$2"
find "$1" -mindepth 1 -type f -perm /6000 -exec sh -c '
  for file; do mode=$(stat -c %a "$file") && chown -h ":$group" "$file" && chmod "$mode" "$file" || exit 1; done' sh {} + &&
find "$1" -mindepth 1 ! \\( -type f -perm /6000 \\) -exec chown -h ":$group" {} + &&
find "$1" -mindepth 1 ! -type l ! -type d -exec chmod ug+rw {} + &&
find "$1" -mindepth 1 -type d -exec chmod ug+rwx,g+s {} + &&
chown -h ":$group" "$1" && chmod ug+rwx,g+s "$1"
`;
