import { CodedError } from "../../src/lib/errors.ts";
import type { FileInfo, FileKind } from "../../src/seams/host.ts";

/** One inode of the fake's files. */
export interface Inode {
  readonly inode: number;
  readonly kind: FileKind;
  mode: number;
  uid: number;
  gid: number;
  modifiedAt: number;
  /** Content of a file. */
  data: Buffer;
  /** Where a link leads. */
  readonly target: string;
  /** Entries of a directory by name. */
  readonly children: Map<string, Inode>;
}

/** An entry of a directory, with what is needed to change it. */
export interface Entry {
  readonly parent: Inode;
  readonly name: string;
  readonly node: Inode | undefined;
  /** Without links, but for the entry itself. */
  readonly path: string;
}

/** Directories on which something else is mounted, by real path. */
export type Mounts = ReadonlyMap<string, Inode>;

const mostLinks = 40;

/** Resolves paths in the tree below `root` as a kernel does. */
export function createResolver(root: Inode, mounts: Mounts) {
  const at = (path: string, node: Inode): Inode => mounts.get(path) ?? node;

  const walk = (start: string, followLast: boolean): Entry => {
    if (!start.startsWith("/")) throw new CodedError("invalid_argument", `${start} is not absolute`);
    let names = namesOf(start);
    let path: { readonly name: string; readonly node: Inode }[] = [];
    let links = 0;
    const here = () => path.at(-1)?.node ?? at("/", root);
    const text = () => `/${path.map(({ name }) => name).join("/")}`;
    while (names.length > 0) {
      const [name = "", ...rest] = names;
      names = rest;
      const parent = here();
      if (parent.kind !== "directory") throw new CodedError("not_found", `${start}: ${text()} is not a directory`);
      if (name === "..") {
        path = path.slice(0, -1);
        continue;
      }
      const full = text() === "/" ? `/${name}` : `${text()}/${name}`;
      const found = parent.children.get(name);
      if (!found) {
        if (rest.length > 0) throw new CodedError("not_found", `${start}: no such file or directory`);
        return { parent, name, node: undefined, path: full };
      }
      if (found.kind === "symlink" && (rest.length > 0 || followLast)) {
        if (++links > mostLinks) throw new CodedError("failed_precondition", `${start}: too many links`);
        if (found.target.startsWith("/")) path = [];
        names = [...namesOf(found.target), ...rest];
        continue;
      }
      if (rest.length === 0) return { parent, name, node: at(full, found), path: full };
      path = [...path, { name, node: at(full, found) }];
    }
    return { parent: here(), name: "", node: here(), path: text() };
  };

  return {
    /** The entry that a path leads to; its node is undefined when only its directory exists. */
    entry: walk,
    /** What a path leads to, links followed. @throws not_found. */
    follow: (path: string): Inode => must(path, walk(path, true).node),
    /** What stands at the path itself. @throws not_found. */
    at: (path: string): Inode => must(path, walk(path, false).node),
    realpath(path: string): string {
      const found = walk(path, true);
      must(path, found.node);
      return found.path;
    },
  };
}

export type Resolver = ReturnType<typeof createResolver>;

function namesOf(path: string): string[] {
  return path.split("/").filter((name) => name !== "" && name !== ".");
}

function must(path: string, node: Inode | undefined): Inode {
  if (!node) throw new CodedError("not_found", `${path}: no such file or directory`);
  return node;
}

export function infoOf(node: Inode): FileInfo {
  const { kind, mode, uid, gid, modifiedAt, inode, data } = node;
  return { kind, mode, uid, gid, size: data.length, modifiedAt, inode };
}
