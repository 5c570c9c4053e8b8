import type { Duplex, Readable, Writable } from "node:stream";
import { CodedError } from "../lib/errors.ts";
import type { TargetBudget } from "../lib/target-budget.ts";
import type { Argv } from "./command.ts";

/** Address to connect to, as seen from the target. */
export type Address = { readonly unix: string } | { readonly host: string; readonly port: number };

export type FileKind = "file" | "directory" | "symlink" | "socket" | "fifo" | "characterDevice" | "blockDevice";

export const maxDirectoryEntries = 100_000;

/** Error for a directory with more than `maxDirectoryEntries` entries. */
export function tooManyEntries(path: string): CodedError {
  return new CodedError("resource_exhausted", `${path} has more than ${maxDirectoryEntries} entries`);
}

export interface FileInfo {
  readonly kind: FileKind;
  /** Permission bits with setuid, setgid and sticky (07777). */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Size, bytes. */
  readonly size: number;
  /** Milliseconds since the epoch, by the target's clock. */
  readonly modifiedAt: number;
  /** Inode number; 0 if the host does not report it. */
  readonly inode: number;
}

export interface DirectoryEntry {
  readonly name: string;
  readonly kind: FileKind;
}

/** Space on the file system of a path. */
export interface FileSystemInfo {
  readonly capacityBytes: number;
  /** Space that unprivileged users can still write. */
  readonly availableBytes: number;
  /** Space in use. Blocks reserved for the superuser count neither as used nor as available. */
  readonly usedBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
}

/** One change to files. `mode` is exact: no umask applies. Missing `mode`: 0755 for directories, 0644 for files. */
export type FileChange =
  | { readonly kind: "mkdir"; readonly path: string; readonly mode?: number; readonly parents?: boolean }
  /** Creates an empty file of mode 0644. Fails with already_exists if the path exists, even as a dangling link. */
  | { readonly kind: "create"; readonly path: string }
  | { readonly kind: "write"; readonly path: string; readonly data: Uint8Array | string; readonly mode?: number }
  | { readonly kind: "symlink"; readonly path: string; readonly target: string }
  | { readonly kind: "rename"; readonly from: string; readonly to: string }
  | { readonly kind: "chmod"; readonly path: string; readonly mode: number }
  | { readonly kind: "chown"; readonly path: string; readonly uid: number; readonly gid: number }
  /** Mounts a tmpfs on a directory, over what is mounted there. Fails with failed_precondition. @param options of mount(8), separated by
   *  commas; may be empty. */
  | { readonly kind: "mountTmpfs"; readonly path: string; readonly options: string }
  | { readonly kind: "remove"; readonly path: string; readonly recursive?: boolean };

/** An open file on the target. */
export interface HostFile extends AsyncDisposable {
  /** Reads up to `length` bytes from `position`; an empty buffer at the end. A host may read into `into` (at least `length`
   *  bytes) and return a slice of it: for callers that finish with one block before they read the next. */
  read(position: number, length: number, signal?: AbortSignal, into?: Buffer): Promise<Buffer>;
  stat(signal?: AbortSignal): Promise<FileInfo>;
  close(): Promise<void>;
}

/** The target's files. Errors are coded: not_found, already_exists, permission_denied, failed_precondition,
 *  resource_exhausted, unavailable (the target is unreachable). */
export interface HostFs {
  /** Reads the whole file. @throws resource_exhausted when it is larger than `maxBytes` (default 4 MiB). */
  readFile(path: string, options?: { readonly maxBytes?: number; readonly signal?: AbortSignal }): Promise<Buffer>;
  /** Opens a regular file for reading, links followed. With `noFollow` the absolute path, as `realpath` returns it, must have
   *  no link in any part, including concurrent ones. Never blocks on a FIFO: anything but a regular file is
   *  failed_precondition, and so is a link with `noFollow`. */
  open(path: string, options?: { readonly noFollow?: boolean; readonly signal?: AbortSignal }): Promise<HostFile>;
  /** Reads at most the last `bytes` bytes of a regular file, without following a link at the end of the path. Takes one round trip where
   *  possible. @throws like `open`. */
  readTail(path: string, bytes: number, signal?: AbortSignal): Promise<Buffer>;
  /** Lists a directory. @throws resource_exhausted for more than 100,000 entries. */
  list(path: string, signal?: AbortSignal): Promise<DirectoryEntry[]>;
  /** Describes the file, links followed. */
  stat(path: string, signal?: AbortSignal): Promise<FileInfo>;
  /** Describes the path itself, links not followed. */
  lstat(path: string, signal?: AbortSignal): Promise<FileInfo>;
  /** Batched lstat of paths on one file system: undefined for a missing path; paths that cannot be read are omitted. Present only where it
   *  is cheaper than running one command. */
  lstatAll?(paths: readonly string[], signal?: AbortSignal): Promise<ReadonlyMap<string, FileInfo | undefined>>;
  readlink(path: string, signal?: AbortSignal): Promise<string>;
  realpath(path: string, signal?: AbortSignal): Promise<string>;
  fileSystemInfo(path: string, signal?: AbortSignal): Promise<FileSystemInfo>;
  /** Applies the changes in order, in one round trip where possible; stops at the first failure. `mkdir` of an existing
   *  directory, `remove` of a missing path and an identical `symlink` succeed; every change except `create`, `rename` and
   *  `mountTmpfs` is idempotent. An existing directory keeps its mode. `remove` never follows a link, not even one created concurrently,
   *  and never crosses a mount; it supports any file names, depth and tree size. */
  apply(changes: readonly FileChange[], signal?: AbortSignal): Promise<void>;
}

export interface RunOptions {
  readonly stdin?: string | Uint8Array;
  /** Timeout, milliseconds, after which the command is killed; default 30 000. */
  readonly timeoutMs?: number;
  /** Bytes kept of each output stream; the rest is dropped and `truncated` set. Default 1 MiB. */
  readonly maxOutputBytes?: number;
  /** True for a short command that reads no input and whose standard output is not used. A host may run such commands one after
   *  another in a resident shell, which is cheaper than starting a process for each. The exit code is 127 if there is no such
   *  program. */
  readonly brief?: boolean;
  readonly signal?: AbortSignal;
}

export interface RunResult {
  /** Exit code; 128 + signal number when a signal ended it. */
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly truncated: boolean;
}

/** A running command and its standard streams. */
export interface HostProcess extends AsyncDisposable {
  readonly pid: number;
  readonly stdin: Writable;
  /** On a remote target the exit may be reported only after standard error has ended as well. */
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Exit code as in RunResult. */
  readonly exited: Promise<number>;
  kill(signal?: "SIGTERM" | "SIGKILL"): void;
}

export interface HostListener extends AsyncDisposable {
  readonly address: Address;
}

/** The target's clock. */
export interface HostClock {
  /** The target's wall clock minus graftlet's, milliseconds: add it to local time to get the target's time. */
  offsetMs(signal?: AbortSignal): Promise<number>;
  /** The target's boot ID (/proc/sys/kernel/random/boot_id), which changes with every boot. */
  bootId(signal?: AbortSignal): Promise<string>;
}

/** The connections to a remote target. Each is served by a process there, which is named by its number, its start time in ticks, and the ID of
 *  the boot. Connections whose process the target does not show are left out. */
export interface HostConnections {
  /** The processes that serve the open connections. */
  servers(): readonly string[];
  /** Has a command run for each further connection before it is used; one whose command fails is closed.
   *  @param known servers of the connections for which no command is needed. @param command for a connection's server.
   *  @returns a function that ends this. @throws as `Host.run` if the command fails for a connection that is already open. */
  onFurther(known: readonly string[], command: (server: string) => Argv, signal: AbortSignal): Promise<() => void>;
}

/** The target machine: its files, processes and network as a kubelet on that machine would see them. */
export interface Host extends AsyncDisposable {
  /** Budget that is charged for data received from the target. */
  readonly budget?: TargetBudget;
  readonly fs: HostFs;
  readonly clock: HostClock;
  /** Present only where commands run over connections of their own. */
  readonly connections?: HostConnections;
  /** Runs a command to completion; a non-zero exit code is a result, not an error.
   *  @throws not_found when there is no such program, deadline_exceeded (the command was killed), unavailable. */
  run(argv: Argv, options?: RunOptions): Promise<RunResult>;
  /** Starts a command. @throws not_found when there is no such program, unavailable. */
  spawn(argv: Argv, signal?: AbortSignal): Promise<HostProcess>;
  /** Locks a file or directory with flock(2) until disposed of or until this process ends; needs no helper process on the target. Present
   *  only where the target is the local machine. @returns undefined when another process holds the lock.
   *  @throws failed_precondition when the path cannot be opened, not_found without a `flock` program. */
  lock?(
    path: string,
    options: { readonly shared: boolean; readonly signal: AbortSignal },
  ): Promise<AsyncDisposable | undefined>;
  /** Opens a connection from the target.
   *  @throws unavailable when it is refused, deadline_exceeded; the cause chain has the system error (ECONNREFUSED,
   *  EHOSTUNREACH, …) if the target reports it. */
  dial(to: Address, signal?: AbortSignal): Promise<Duplex>;
  /** Listens on a socket of the target and passes its connections to `onConnection`. */
  listen?(at: Address, onConnection: (connection: Duplex) => void, signal?: AbortSignal): Promise<HostListener>;
  /** Emits a path whenever `path` or something in it may have changed (a hint: inspect it again). Ends when the signal aborts;
   *  rejects when watching is no longer possible. */
  watch?(path: string, signal: AbortSignal): AsyncIterable<string>;
  /** `spawn`, `dial` and `watch` for users of the kubelet API. On a link with few channels users get at most half of them, so that
   *  the node's own work is never blocked; further users wait for a free channel. */
  readonly forUsers?: Pick<Host, "spawn" | "dial" | "watch">;
  /** `dial` and `listen` for pods' connections, which must not hold up the node's own traffic. */
  readonly forPods?: Pick<Host, "dial" | "listen">;
}
