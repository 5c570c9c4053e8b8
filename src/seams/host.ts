import type { Duplex, Readable, Writable } from "node:stream";
import { CodedError } from "../lib/errors.ts";
import type { TargetBudget } from "../lib/target-budget.ts";
import type { Argv } from "./command.ts";

/** Address to connect to, as seen from the target. */
export type Address = { readonly unix: string } | { readonly host: string; readonly port: number };

export type FileKind = "file" | "directory" | "symlink" | "socket" | "fifo" | "characterDevice" | "blockDevice";

/** Most entries of a directory that is listed. */
export const maxDirectoryEntries = 100_000;

/** The error of a listing with more. */
export function tooManyEntries(path: string): CodedError {
  return new CodedError("resource_exhausted", `${path} has more than ${maxDirectoryEntries} entries`);
}

export interface FileInfo {
  readonly kind: FileKind;
  /** Permission bits with setuid, setgid and sticky (07777). */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Bytes. */
  readonly size: number;
  /** Milliseconds since the epoch, by the target's clock. */
  readonly modifiedAt: number;
  /** Identifies the file under its name; 0 where the host does not know. */
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
  /** Space that is taken. What is kept for the superuser is neither used nor available. */
  readonly usedBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
}

/** One change to files. `mode` is exact: no umask applies. Missing `mode`: 0755 for directories, 0644 for files. */
export type FileChange =
  | { readonly do: "mkdir"; readonly path: string; readonly mode?: number; readonly parents?: boolean }
  /** Creates an empty file of mode 0644; already_exists when there is one, and for a dangling link. */
  | { readonly do: "create"; readonly path: string }
  | { readonly do: "write"; readonly path: string; readonly data: Uint8Array | string; readonly mode?: number }
  | { readonly do: "symlink"; readonly path: string; readonly target: string }
  | { readonly do: "rename"; readonly from: string; readonly to: string }
  | { readonly do: "chmod"; readonly path: string; readonly mode: number }
  | { readonly do: "chown"; readonly path: string; readonly uid: number; readonly gid: number }
  | { readonly do: "remove"; readonly path: string; readonly recursive?: boolean };

/** An open file on the target. */
export interface HostFile extends AsyncDisposable {
  /** Reads up to `length` bytes from `position`; an empty buffer at the end. A host may read into `into` (at least `length`
   *  bytes of memory) and return a part of it: for callers that finish one block before they read the next. */
  read(position: number, length: number, signal?: AbortSignal, into?: Buffer): Promise<Buffer>;
  stat(signal?: AbortSignal): Promise<FileInfo>;
  close(): Promise<void>;
}

/** The target's files. Errors are coded: not_found, already_exists, permission_denied, failed_precondition,
 *  resource_exhausted, unavailable (the target is out of reach). */
export interface HostFs {
  /** The whole file. @throws resource_exhausted when it is larger than `maxBytes` (default 4 MiB). */
  readFile(path: string, options?: { readonly maxBytes?: number; readonly signal?: AbortSignal }): Promise<Buffer>;
  /** Opens a regular file for reading, links followed. With `noFollow` the absolute path, as `realpath` returns it, must have
   *  no link in any part, including concurrent ones. Never blocks on a FIFO: anything but a regular file is
   *  failed_precondition, and so is a link with `noFollow`. */
  open(path: string, options?: { readonly noFollow?: boolean; readonly signal?: AbortSignal }): Promise<HostFile>;
  /** The last bytes of a regular file, at most so many; no link is followed at the end of the path. In one round trip where the host
   *  can. @throws as `open` does. */
  readEnd(path: string, bytes: number, signal?: AbortSignal): Promise<Buffer>;
  /** What a directory holds. @throws resource_exhausted for more than 100,000 entries. */
  list(path: string, signal?: AbortSignal): Promise<DirectoryEntry[]>;
  /** Describes the file, links followed. */
  stat(path: string, signal?: AbortSignal): Promise<FileInfo>;
  /** Describes the path itself, links not followed. */
  lstat(path: string, signal?: AbortSignal): Promise<FileInfo>;
  /** Describes several paths of one file system, links not followed: undefined for a missing one; what cannot be described is left out.
   *  Only where that costs less than one command. */
  lstatAll?(paths: readonly string[], signal?: AbortSignal): Promise<ReadonlyMap<string, FileInfo | undefined>>;
  readlink(path: string, signal?: AbortSignal): Promise<string>;
  realpath(path: string, signal?: AbortSignal): Promise<string>;
  freeSpace(path: string, signal?: AbortSignal): Promise<FileSystemInfo>;
  /** Applies the changes in order, in one round trip where the host can; stops at the first failure. `mkdir` of an existing
   *  directory, `remove` of a missing path and an identical `symlink` succeed; every change but `create` and `rename` is safe
   *  to repeat. An existing directory keeps its mode. `remove` never follows a link, not even one put in place concurrently,
   *  and never crosses a mount; names may be any bytes, and trees may have any depth and size. */
  apply(changes: readonly FileChange[], signal?: AbortSignal): Promise<void>;
}

export interface RunOptions {
  readonly stdin?: string | Uint8Array;
  /** Milliseconds until the command is killed; default 30 000. */
  readonly timeoutMs?: number;
  /** Bytes kept of each output stream; the rest is dropped and `truncated` set. Default 1 MiB. */
  readonly maxOutputBytes?: number;
  readonly signal?: AbortSignal;
}

export interface RunResult {
  /** Exit code; 128 + signal number when a signal ended it. */
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly truncated: boolean;
}

/** A running command, as streams. */
export interface HostProcess extends AsyncDisposable {
  readonly pid: number;
  readonly stdin: Writable;
  /** On a remote target the exit may be reported only after standard error has ended, too. */
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
  /** Target's wall clock minus graftlet's, milliseconds; what to add to our time to get the target's. */
  offsetMs(signal?: AbortSignal): Promise<number>;
  /** Changes whenever the target boots (/proc/sys/kernel/random/boot_id). */
  bootId(signal?: AbortSignal): Promise<string>;
}

/** The target machine: its files, processes and network as a kubelet on that machine would see them. */
export interface Host extends AsyncDisposable {
  /** Charged with what is decoded of the target's data. */
  readonly budget?: TargetBudget;
  readonly fs: HostFs;
  readonly clock: HostClock;
  /** Runs a command to its end; a non-zero exit is a result, not an error. Words that others write are operands of it, never options.
   *  @throws not_found when there is no such program, deadline_exceeded (the command was killed), unavailable. */
  run(argv: Argv, options?: RunOptions): Promise<RunResult>;
  /** @throws not_found when there is no such program, unavailable. */
  spawn(argv: Argv, signal?: AbortSignal): Promise<HostProcess>;
  /** Locks an existing file, or a directory, by flock(2) for as long as this process lives, or until disposed of: no process of the target
   *  has to stay for it. Only where the target is this process's own machine. @returns undefined when another process has it.
   *  @throws failed_precondition for a path that cannot be opened, not_found where there is no `flock` program. */
  lock?(
    path: string,
    options: { readonly shared: boolean; readonly signal: AbortSignal },
  ): Promise<AsyncDisposable | undefined>;
  /** Opens a connection from the target.
   *  @throws unavailable when it is refused, deadline_exceeded; the causes include the system's error (ECONNREFUSED,
   *  EHOSTUNREACH, …) when the target reports it. */
  dial(to: Address, signal?: AbortSignal): Promise<Duplex>;
  /** Listens on a socket of the target; its connections go to `onConnection`. */
  listen?(at: Address, onConnection: (connection: Duplex) => void, signal?: AbortSignal): Promise<HostListener>;
  /** Emits a path whenever something in or at `path` may have changed (a hint: look again). Ends when the signal aborts;
   *  rejects when watching is no longer possible. */
  watch?(path: string, signal: AbortSignal): AsyncIterable<string>;
  /** Like `dial`, for users of the kubelet API: on a link with few channels they get at most half of them, so that the node's
   *  own work finds one. A user waits for a free one. */
  readonly forUsers?: Pick<Host, "spawn" | "dial" | "watch">;
  /** Like `dial` and `listen`, for connections of pods: the node's own work does not wait for what fills them. */
  readonly forPods?: Pick<Host, "dial" | "listen">;
}
