import type { Duplex, Readable, Writable } from "node:stream";

/** Address to connect to, as seen from the target. */
export type Address = { readonly unix: string } | { readonly host: string; readonly port: number };

export type FileKind = "file" | "directory" | "symlink" | "socket" | "fifo" | "characterDevice" | "blockDevice";

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
  /** Tells one file from another that took its name; 0 where the host cannot say. */
  readonly inode: number;
}

export interface DirectoryEntry {
  readonly name: string;
  readonly kind: FileKind;
}

/** Room on the file system that holds a path. */
export interface FileSystemInfo {
  readonly capacityBytes: number;
  /** Space that unprivileged users can still write. */
  readonly availableBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
}

/** One change to files. `mode` is exact: no umask applies. Missing `mode`: 0755 for directories, 0644 for files. */
export type FileChange =
  | { readonly do: "mkdir"; readonly path: string; readonly mode?: number; readonly parents?: boolean }
  /** An empty file of mode 0644, where nothing is: already_exists otherwise, for a link that leads nowhere too. */
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
  /** The whole file. @throws resource_exhausted when it is larger than `maxBytes` (default 16 MiB). */
  readFile(path: string, options?: { readonly maxBytes?: number; readonly signal?: AbortSignal }): Promise<Buffer>;
  /** Opens a regular file for reading, following links. With `noFollow` the path, absolute, as `realpath` gives it, has none in any
   *  part of it, put there meanwhile neither: what is opened lies at that path. Never blocks on a FIFO: anything but a regular
   *  file is failed_precondition, and so is a link that is not followed. */
  open(path: string, options?: { readonly noFollow?: boolean; readonly signal?: AbortSignal }): Promise<HostFile>;
  /** The last bytes of a regular file, at most so many; no link is followed at the end of the path. In one round trip where the host
   *  can. @throws as `open` does. */
  readEnd(path: string, bytes: number, signal?: AbortSignal): Promise<Buffer>;
  list(path: string, signal?: AbortSignal): Promise<DirectoryEntry[]>;
  /** Describes the file, links followed. */
  stat(path: string, signal?: AbortSignal): Promise<FileInfo>;
  /** Describes the path itself, links not followed. */
  lstat(path: string, signal?: AbortSignal): Promise<FileInfo>;
  readlink(path: string, signal?: AbortSignal): Promise<string>;
  realpath(path: string, signal?: AbortSignal): Promise<string>;
  freeSpace(path: string, signal?: AbortSignal): Promise<FileSystemInfo>;
  /** Makes the changes in order, in one round trip where the host can; stops at the first that fails. `mkdir` of a
   *  directory that exists and `remove` of what does not succeed; so does a `symlink` that stands
   *  already; every change but `create` and `rename` is safe to repeat. What `mkdir` finds it leaves as it is. `remove` never follows a link, one put in a directory's place meanwhile
   *  neither, and never crosses a mount; names may be any bytes, and trees as deep and as full as they are. */
  apply(changes: readonly FileChange[], signal?: AbortSignal): Promise<void>;
}

export interface RunOptions {
  readonly stdin?: string | Uint8Array;
  /** Milliseconds until the command is killed; default 30 000. */
  readonly timeoutMs?: number;
  /** Bytes kept of each output stream; what goes beyond is dropped and `truncated` set. Default 1 MiB. */
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

/** A command under way, as streams. */
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

/** The target's time beside ours. */
export interface HostClock {
  /** Target's wall clock minus graftlet's, milliseconds; what to add to our time to get the target's. */
  offsetMs(signal?: AbortSignal): Promise<number>;
  /** Changes whenever the target boots (/proc/sys/kernel/random/boot_id). */
  bootId(signal?: AbortSignal): Promise<string>;
}

/** The machine whose pods run: its files, processes and network as a kubelet on that machine would see them. */
export interface Host extends AsyncDisposable {
  readonly fs: HostFs;
  readonly clock: HostClock;
  /** Runs a command to its end; a non-zero exit is a result, not an error.
   *  @throws not_found when there is no such program, deadline_exceeded (the command was killed), unavailable. */
  run(argv: readonly string[], options?: RunOptions): Promise<RunResult>;
  /** @throws not_found when there is no such program, unavailable. */
  spawn(argv: readonly string[], signal?: AbortSignal): Promise<HostProcess>;
  /** Opens a connection from the target.
   *  @throws unavailable when it is refused, deadline_exceeded; the causes include the system's error (ECONNREFUSED,
   *  EHOSTUNREACH, …) when the target reports it. */
  dial(to: Address, signal?: AbortSignal): Promise<Duplex>;
  /** A socket on the target whose connections come to `onConnection`. */
  listen?(at: Address, onConnection: (connection: Duplex) => void, signal?: AbortSignal): Promise<HostListener>;
  /** Emits a path whenever something in or at `path` may have changed (a hint: look again). Ends when the signal aborts;
   *  rejects when watching is no longer possible. */
  watch?(path: string, signal: AbortSignal): AsyncIterable<string>;
  /** The same for what users of the kubelet API ask for, where the way to the target has few places: at most half of them are
   *  theirs, so that the node's own work finds one. Who finds none there waits. */
  readonly forUsers?: Pick<Host, "spawn" | "dial" | "watch">;
}
