import { dirname } from "node:path";
import type { Clock } from "../../src/lib/clock.ts";
import { mountTmpfsCommand } from "../../src/host/mounts.ts";
import { CodedError, throwIfAborted } from "../../src/lib/errors.ts";
import type { Argv } from "../../src/seams/command.ts";
import type { FileChange, FileKind, FileSystemInfo, HostFile, HostFs } from "../../src/seams/host.ts";
import { type Entry, type Inode, createResolver, infoOf } from "./host-tree.ts";

export interface FileDetails {
  readonly kind?: Exclude<FileKind, "directory" | "symlink">;
  readonly data?: string;
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
}

/** How tests set up and look at the fake's files. */
export interface FakeFiles {
  readonly fs: HostFs;
  /** Every change that was asked for and not refused by `onChange`, in order. */
  readonly changes: readonly FileChange[];
  /** Puts something at a path, its directories included. */
  put(path: string, details?: FileDetails): void;
  text(path: string): string;
  /** All paths below a directory, sorted; links are not followed. */
  tree(path: string): readonly string[];
  /** Called before each change; it may wait, and it may throw: then this change and those after it are not made. */
  onChange(hook: ((change: FileChange) => void | Promise<void>) | undefined): void;
  /** A file system of its own over a directory; what the directory held is hidden. @param device that others show, too. */
  mount(path: string, fsType: string, device?: string, superOptions?: string): void;
  /** Shows what is at another path. */
  bind(from: string, path: string): void;
  /** @throws failed_precondition when nothing is mounted there. */
  unmount(path: string): void;
  mounted(): readonly { readonly path: string; readonly fsType: string }[];
  /** What fileSystemInfo tells. */
  space: FileSystemInfo;
}

interface FakeFilesDeps {
  /** Is told the path of everything that changes. */
  readonly changed: (path: string) => void;
  readonly run: (argv: Argv) => Promise<{ readonly code: number }>;
  /** Whether changes are kept. */
  readonly isRecorded: boolean;
}

/** Files in memory with a kernel's rules: links, modes, owners, mounts. Nobody is refused for lack of permission. */
export function createFakeFiles(clock: Clock, { changed, run, isRecorded }: FakeFilesDeps): FakeFiles {
  const mounts = new Map<string, Inode>();
  const types = new Map<string, string>();
  const superOptions = new Map<string, string>();
  const devices = new Map<string, string>();
  const changes: FileChange[] = [];
  let made = 0;
  let hook: ((change: FileChange) => void | Promise<void>) | undefined;
  const newNode = (kind: FileKind, mode: number, target = ""): Inode => ({
    inode: ++made,
    kind,
    mode,
    uid: 0,
    gid: 0,
    modifiedAt: clock.now(),
    data: Buffer.alloc(0),
    target,
    children: new Map<string, Inode>(),
  });
  const root = newNode("directory", 0o755);
  const tree = createResolver(root, mounts);
  const link = ({ parent, name }: Pick<Entry, "parent" | "name">, node: Inode | undefined) => {
    if (node) parent.children.set(name, node);
    else parent.children.delete(name);
    parent.modifiedAt = clock.now();
  };

  const mkdir = (path: string, mode: number, parents: boolean): void => {
    if (parents && path !== "/") mkdir(dirname(path), 0o755, true);
    const entry = tree.entry(path, true);
    if (entry.node && entry.node.kind !== "directory")
      throw new CodedError("already_exists", `${path} exists and is not a directory`);
    if (entry.node) return;
    if (tree.entry(path, false).node) throw new CodedError("not_found", `${path} is a link that leads nowhere`);
    link(entry, newNode("directory", mode));
  };
  const write = (path: string, data: Uint8Array | string, mode: number) => {
    const entry = tree.entry(path, true);
    if (entry.node?.kind === "directory") throw new CodedError("failed_precondition", `${path} is a directory`);
    const node = entry.node ?? newNode("file", mode);
    node.data = Buffer.from(data);
    node.mode = mode;
    node.modifiedAt = clock.now();
    if (!entry.node) link(entry, node);
  };
  const create = (path: string) => {
    const entry = tree.entry(path, false);
    if (entry.node) throw new CodedError("already_exists", `${path} exists`);
    link(entry, newNode("file", 0o644));
  };
  const symlink = (path: string, target: string) => {
    const entry = tree.entry(path, false);
    if (entry.node?.kind === "symlink" && entry.node.target === target) return;
    if (entry.node) throw new CodedError("already_exists", `${path} exists`);
    link(entry, newNode("symlink", 0o777, target));
  };
  const rename = (from: string, to: string) => {
    const source = tree.entry(from, false);
    const node = tree.at(from);
    const goal = tree.entry(to, false);
    if (goal.node?.kind === "directory" && goal.node.children.size > 0)
      throw new CodedError("failed_precondition", `${to} is not empty`);
    if (goal.node?.kind === "directory" && node.kind !== "directory")
      throw new CodedError("failed_precondition", `${to} is a directory`);
    link(source, undefined);
    link(goal, node);
  };
  const remove = (path: string, recursive: boolean) => {
    const entry = existing(() => tree.entry(path, false));
    if (!entry?.node) return;
    const below = `${entry.path}/`;
    const mount = [...mounts.keys()].find((each) => each === entry.path || (recursive && each.startsWith(below)));
    if (mount !== undefined) throw new CodedError("failed_precondition", `${mount} is a mount point: unmount it first`);
    if (entry.node.kind === "directory" && entry.node.children.size > 0 && !recursive)
      throw new CodedError("failed_precondition", `${path} is not empty`);
    link(entry, undefined);
  };

  const apply = (change: Exclude<FileChange, { kind: "mountTmpfs" }>): void => {
    switch (change.kind) {
      case "mkdir":
        return mkdir(change.path, change.mode ?? 0o755, change.parents === true);
      case "create":
        return create(change.path);
      case "write":
        return write(change.path, change.data, change.mode ?? 0o644);
      case "symlink":
        return symlink(change.path, change.target);
      case "rename":
        return rename(change.from, change.to);
      case "chmod":
        tree.follow(change.path).mode = change.mode;
        return;
      case "chown": {
        Object.assign(tree.at(change.path), { uid: change.uid, gid: change.gid });
        return;
      }
      case "remove":
        return remove(change.path, change.recursive === true);
    }
  };

  const regular = (path: string, node: Inode): Inode => {
    if (node.kind !== "file") throw new CodedError("failed_precondition", `${path} is not a regular file`);
    return node;
  };
  const read = (path: string): Buffer =>
    path === "/proc/self/mountinfo" ? mountInfo() : regular(path, tree.follow(path)).data;
  const mountInfo = () =>
    Buffer.from(
      [...types]
        .map(
          ([path, type], index) =>
            `${index + 30} 1 ${devices.get(path) ?? `0:${index + 40}`} / ${path.replaceAll(" ", "\\040")} rw - ${type} ${type} ${superOptions.get(path) ?? "rw"}\n`,
        )
        .join(""),
    );

  const files: FakeFiles = {
    changes,
    space: {
      capacityBytes: 100 * 2 ** 30,
      availableBytes: 50 * 2 ** 30,
      usedBytes: 45 * 2 ** 30,
      inodes: 1_000_000,
      inodesFree: 900_000,
    },
    put(path, { kind = "file", data = "", mode = 0o644, uid = 0, gid = 0 } = {}) {
      mkdir(dirname(path), 0o755, true);
      link(tree.entry(path, false), Object.assign(newNode(kind, mode), { data: Buffer.from(data), uid, gid }));
      changed(path);
    },
    text: (path) => read(path).toString("utf8"),
    tree: (path) => below(path, tree.follow(path)).sort(),
    onChange: (next) => void (hook = next),
    mount(path, fsType, device, options) {
      if (device !== undefined) devices.set(tree.realpath(path), device);
      mounts.set(tree.realpath(path), newNode("directory", 0o1777));
      types.set(tree.realpath(path), fsType);
      if (options !== undefined) superOptions.set(tree.realpath(path), options);
    },
    bind(from, path) {
      const place = tree.realpath(path);
      mounts.set(place, tree.follow(from));
      types.set(place, "devtmpfs");
      const options = superOptions.get(tree.realpath(from));
      if (options !== undefined) superOptions.set(place, options);
    },
    unmount(path) {
      if (!mounts.delete(path) || !types.delete(path))
        throw new CodedError("failed_precondition", `${path} is not mounted`);
      devices.delete(path);
      superOptions.delete(path);
    },
    mounted: () => [...types].map(([path, fsType]) => ({ path, fsType })),
    fs: {
      async readFile(path, { maxBytes = 4 * 2 ** 20, signal } = {}) {
        throwIfAborted(signal);
        const data = read(path);
        if (data.length > maxBytes)
          throw new CodedError("resource_exhausted", `${path} is larger than ${maxBytes} bytes`);
        return Buffer.from(data);
      },
      async open(path, { noFollow = false, signal } = {}) {
        throwIfAborted(signal);
        const found = tree.follow(path);
        if (noFollow && tree.realpath(path) !== path)
          throw new CodedError("failed_precondition", `${path} passes through a symbolic link`);
        return fileOf(regular(path, found));
      },
      async readTail(path, bytes, signal) {
        throwIfAborted(signal);
        const { data } = regular(path, tree.at(path));
        return Buffer.from(data.subarray(Math.max(0, data.length - bytes)));
      },
      async list(path) {
        const node = tree.follow(path);
        if (node.kind !== "directory") throw new CodedError("not_found", `${path} is not a directory`);
        return [...node.children].map(([name, { kind }]) => ({ name, kind }));
      },
      stat: async (path) => infoOf(tree.follow(path)),
      lstat: async (path) => infoOf(tree.at(path)),
      async readlink(path) {
        const { kind, target } = tree.at(path);
        if (kind !== "symlink") throw new CodedError("invalid_argument", `${path} is not a link`);
        return target;
      },
      realpath: async (path) => tree.realpath(path),
      async fileSystemInfo(path) {
        tree.follow(path);
        return { ...files.space };
      },
      async apply(list, signal) {
        for (const change of list) {
          throwIfAborted(signal);
          await hook?.(change);
          if (change.kind !== "mountTmpfs") apply(change);
          else if ((await run(mountTmpfsCommand(change.path, change.options))).code !== 0)
            throw new CodedError("failed_precondition", `${change.path}: mount failed`);
          if (isRecorded) changes.push(change);
          changed("path" in change ? change.path : change.to);
        }
      },
    },
  };
  return files;
}

function fileOf(node: Inode): HostFile {
  return {
    read: async (position, length) => Buffer.from(node.data.subarray(position, position + length)),
    stat: async () => infoOf(node),
    close: async () => {},
    [Symbol.asyncDispose]: async () => {},
  };
}

function below(path: string, { children }: Inode): string[] {
  return [...children].flatMap(([name, node]) => [`${path}/${name}`, ...below(`${path}/${name}`, node)]);
}

function existing<T>(look: () => T): T | undefined {
  try {
    return look();
  } catch (error) {
    if (error instanceof CodedError && error.code === "not_found") return undefined;
    throw error;
  }
}
