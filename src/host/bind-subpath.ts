import { CodedError } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { type MountSource, isAtOrBelow, parseMountSources, locationInFileSystem, unmount } from "./mounts.ts";
import { script } from "../seams/command.ts";

/** A subPath of an untrusted volume: its writers may create a symlink anywhere at any time. */
export interface SubPathBind {
  /** The volume's root directory; only the node can change the path to it. */
  readonly base: string;
  /** Path in the volume: names separated by slashes, none of them `..`; empty for the whole volume. */
  readonly below: string;
  /** Absolute path of the bind target, in a directory that only the node can access; created with mode 0750. */
  readonly target: string;
}

/** Failure to bind-mount a subPath. Its message contains names of the target's files: for logs only. */
export class SubPathError extends CodedError {
  /** Index of the failed subPath. */
  readonly index: number;
  /** `create`: a missing directory could not be created in the volume. */
  readonly step: "create" | "bind";
  constructor(index: number, step: "create" | "bind", message: string) {
    super("failed_precondition", message);
    this.name = "PartError";
    this.index = index;
    this.step = step;
  }
}

/** Bind-mounts subPaths, files or directories, each to its target, replacing earlier mounts. Missing directories are created
 *  in the volume, with the mode of its root. One round trip. Symlinks are not trusted: the path is walked one name at a time
 *  through the working directory; directories are created only where the kernel reports the working directory to be inside the
 *  volume; and the resulting mount is verified to be inside the volume, and otherwise unmounted before the call returns.
 *  @throws SubPathError for the first subPath that could not be mounted. */
export async function bindSubPaths(host: Host, parts: readonly SubPathBind[], signal: AbortSignal): Promise<void> {
  const words = parts.flatMap(({ base, below, target }) => [base, below, target]);
  const { code, stdout, stderr, truncated } = await host.run(script(bindScript, ...words), {
    maxOutputBytes: maxOutputBytes,
    signal,
  });
  if (code !== 0 || truncated)
    throw new CodedError("failed_precondition", `cannot bind-mount subPaths: ${stderr.trim() || `exit code ${code}`}`);
  const { bound, failed, mounted } = parseBindResult(stdout);
  const escaped = bound.findIndex(({ base, target }) => !isInsideVolume(mounted, base, target));
  for (const { base, target } of bound) if (!isInsideVolume(mounted, base, target)) await unmount(host, target, signal);
  if (escaped >= 0)
    throw new SubPathError(
      escaped,
      "bind",
      `${bound[escaped]?.target} would have exposed files outside of ${bound[escaped]?.base}`,
    );
  if (bound.length < parts.length)
    throw new SubPathError(bound.length, failed, stderr.trim() || "the command printed no error");
}

const maxOutputBytes = 16 * 1024 * 1024;

/** Arguments: base, subPath and target of each. Prints `bound` with the real paths of base and target, or the failed step; an
 *  empty line; then device, root and mount point of each mount. POSIX sh, with coreutils and util-linux or busybox. */
const bindScript = `
real() { readlink /proc/self/cwd; }
inside() { here=$(real) && case $here/ in "\${base%/}"/*) ;; *) echo "$here is not in $base" >&2; false ;; esac; }
# Of a loop of links, too long a name or a directory that may not be searched, it is unknown what is there.
missing() { found=$(LC_ALL=C stat -L "$1" 2>&1); case $found in *'No such file'*) ;; *) echo "$found" >&2; false ;; esac; }
fail() { echo "$1"; exit 1; }
part() (
  umask 027
  below=$2 file= mode=
  mkdir -p "\${3%/*}" && cd -P "\${3%/*}" && target=$(real)/\${3##*/} && cd -P "$1" && base=$(real) || fail bind
  case $base$target in *'
'*) fail bind ;; esac
  while [ -n "$below" ]; do
    name=\${below%%/*}
    case $below in */*) below=\${below#*/} ;; *) below= ;; esac
    if [ -d "./$name" ]; then
      cd -P "./$name" || fail bind
    elif [ -e "./$name" ]; then
      file=$name
      [ -z "$below" ] || { echo "$name is not a directory" >&2; fail bind; }
    else
      [ -n "$mode" ] || missing "./$name" || fail bind
      inside && mode=\${mode:-$(stat -c %a "$base")} || fail create
      mkdir -m 700 "./$name" && cd -P "./$name" && inside && chmod "$mode" . || fail create
    fi
  done
  inside || fail bind
  [ ! -e "$target" ] || umount "$target" 2>/dev/null
  if [ -n "$file" ]; then
    [ ! -d "$target" ] || rmdir "$target" || fail bind
    [ -e "$target" ] || : > "$target" || fail bind
  else
    [ -d "$target" ] || rm -f "$target" || fail bind
    [ -d "$target" ] || mkdir "$target" || fail bind
  fi
  # busybox takes the path as it is, and has no option for it.
  mount --no-canonicalize -o bind "./$file" "$target" 2>/dev/null || mount -o bind "./$file" "$target" || fail bind
  printf 'bound\\n%s\\n%s\\n' "$base" "$target"
)
while [ $# -gt 0 ]; do
  part "$1" "$2" "$3" || break
  shift 3
done
echo
cut -d ' ' -f 3-5 /proc/self/mountinfo
`;

interface Bound {
  readonly base: string;
  readonly target: string;
}

interface BindResult {
  readonly bound: readonly Bound[];
  /** Failed step of the subPath after those, if any. */
  readonly failed: SubPathError["step"];
  readonly mounted: readonly MountSource[];
}

function parseBindResult(text: string): BindResult {
  const end = text.indexOf("\n\n");
  const lines = text.slice(0, Math.max(0, end)).split("\n");
  const bound: Bound[] = [];
  let at = 0;
  for (; lines[at] === "bound"; at += 3) bound.push({ base: lines[at + 1] ?? "", target: lines[at + 2] ?? "" });
  return { bound, failed: lines[at] === "create" ? "create" : "bind", mounted: parseMountSources(text.slice(end + 2)) };
}

/** True if the mount at a target is inside the volume at `base`, including mounts within it: the same file system, below the
 *  root of the mount at `base` or of a mount in the volume. Pure; paths must be free of symlinks. */
export function isInsideVolume(mounts: readonly MountSource[], base: string, target: string): boolean {
  const bound = mounts.findLast(({ path }) => path === target);
  if (!bound || bound.root.endsWith("//deleted")) return false;
  const own = locationInFileSystem(mounts, base);
  if (!own) return false;
  const trees = [own, ...mounts.filter(({ path }) => path !== base && path !== target && isAtOrBelow(path, base))];
  return trees.some(({ device, root }) => device === bound.device && isAtOrBelow(bound.root, root));
}
