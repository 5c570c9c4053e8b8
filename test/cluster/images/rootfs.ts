import { chmodSync, copyFileSync, existsSync, mkdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { must, run } from "../../harness/processes.ts";

/** A root filesystem in the making: a folder that becomes a layer. */
export interface RootFs {
  readonly folder: string;
  /** Writes a file, with its folders. */
  file(path: string, content: string | Buffer, mode?: number): void;
  directory(path: string, mode?: number): void;
  /** A symbolic link at `path`; what lies there is replaced. */
  link(path: string, target: string): void;
  /** Copies a program of the machine with the libraries that it loads.
   *  @param tree a folder of unpacked packages, whose libraries count first. */
  program(source: string, path?: string, tree?: string): Promise<void>;
  /** Packs the filesystem as a tar archive whose bytes depend on nothing but its content. */
  pack(tarFile: string): Promise<void>;
}

/** The folder of the machine's libraries, as Debian names it. */
export const triplet = `${process.arch === "arm64" ? "aarch64" : "x86_64"}-linux-gnu`;

/** An empty root filesystem in `folder`, with the merged /usr that Debian's library paths expect. */
export function createRootFs(folder: string): RootFs {
  const at = (path: string): string => join(folder, path);
  for (const dir of ["usr/bin", "usr/sbin", "usr/lib", "usr/lib64"]) mkdirSync(at(dir), { recursive: true });
  for (const dir of ["bin", "sbin", "lib", "lib64"]) symlinkSync(`usr/${dir}`, at(dir));
  return {
    folder,
    file(path, content, mode = 0o644) {
      mkdirSync(dirname(at(path)), { recursive: true });
      writeFileSync(at(path), content);
      chmodSync(at(path), mode);
    },
    directory(path, mode = 0o755) {
      mkdirSync(at(path), { recursive: true });
      chmodSync(at(path), mode);
    },
    link(path, target) {
      rmSync(at(path), { force: true });
      symlinkSync(target, at(path));
    },
    async program(source, path = join("/usr/bin", source.slice(source.lastIndexOf("/") + 1)), tree = "") {
      copy(source, at(path));
      for (const library of await librariesOf(source, tree)) {
        const target = at(tree !== "" && library.startsWith(`${tree}/`) ? library.slice(tree.length) : library);
        if (!existsSync(target)) copy(library, target);
      }
    },
    async pack(tarFile) {
      await must(
        [
          "tar",
          "--sort=name",
          "--mtime=@0",
          "--owner=0",
          "--group=0",
          "--numeric-owner",
          "--format=gnu",
          "-C",
          folder,
          "-cf",
          tarFile,
          ".",
        ],
        { timeoutMs: 300_000 },
      );
    },
  };
}

/** Copies a file with its mode. What lies there goes first: it may be a link to busybox itself. */
function copy(source: string, target: string): void {
  mkdirSync(dirname(target), { recursive: true });
  rmSync(target, { force: true });
  copyFileSync(source, target);
  chmodSync(target, statSync(source).mode & 0o7777);
}

/** The shared libraries of a program; none for one that is linked statically. */
async function librariesOf(program: string, tree: string): Promise<string[]> {
  const folders = ["usr/lib", "lib"].map((folder) => join(tree, folder, triplet));
  const { stdout } = await run(["ldd", program], tree === "" ? {} : { env: { LD_LIBRARY_PATH: folders.join(":") } });
  return [...stdout.matchAll(/^\s*(?:\S+ => )?(\/\S+) \(0x/gm)].flatMap((match) => match[1] ?? []);
}
