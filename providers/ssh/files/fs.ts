import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError, throwIfAborted } from "../../../src/lib/errors.ts";
import type { TargetBudget } from "../../../src/lib/target-budget.ts";
import type { FileChange, FileInfo, HostFs } from "../../../src/seams/host.ts";
import { applyScript, changesMade, changePath } from "./apply-script.ts";
import { parseEntries, parseStat, statFormat } from "./file-info.ts";
import { prelude, type ShellResult } from "../shell/shell.ts";
import { quote } from "../shell/quote.ts";
import { type CommandResult, maxPooledScriptBytes } from "../process/command.ts";
import { type Ask, type OpenFiles, shellFiles } from "./files-without-sftp.ts";
import type { SftpClient } from "./sftp-client.ts";
import { sftpFiles } from "./sftp-files.ts";
import type { ShellPool } from "../shell/shell-pool.ts";
import { commandError } from "../shell/system-errors.ts";

export interface FsOptions {
  readonly pool: ShellPool;
  /** The SFTP session, opened on first use; undefined if the target has no SFTP. */
  readonly sftp: (signal: AbortSignal) => Promise<SftpClient | undefined>;
  /** Runs a script that is too long for a pooled shell. */
  readonly runInOwnSession: (script: string, signal: AbortSignal) => Promise<CommandResult>;
  /** Budget that is charged for the content of files and directories. */
  readonly budget?: TargetBudget;
  readonly clock: Clock;
}

const defaultMaxBytes = 4 * 1024 * 1024;
/** Default timeout of an operation, milliseconds: a file system of the target may hang (NFS). */
const timeoutMs = 60_000;
const maxListingBytes = 32 * 1024 * 1024;
const shortBytes = 64 * 1024;

/** The target's files. Shell commands are used where SFTP does not provide the information (inodes, causes of errors) or needs
 *  several round trips; SFTP is used for everything else, such as open files, if the target has it. */
export function sshFs({ pool, sftp: session, runInOwnSession, budget, clock }: FsOptions): HostFs {
  const within = (signal?: AbortSignal) => {
    throwIfAborted(signal);
    return clock.within(timeoutMs, signal);
  };
  const askUncharged: Ask = async (path, script, { maxBytes = shortBytes, signal }) =>
    outputOf(path, await pool.run({ script, maxBytes }, within(signal)));
  const ask: Ask = async (...question) => {
    const answer = await askUncharged(...question);
    budget?.spend(answer.length);
    return answer;
  };
  const statOf = async (path: string, follow: boolean, signal?: AbortSignal): Promise<FileInfo> => {
    const call = `stat ${follow ? "-L " : ""}-c ${quote(statFormat)} -- ${quote(path)}`;
    return parseStat((await ask(path, call, { ...(signal && { signal }) })).toString("latin1"));
  };
  const withoutSftp = shellFiles(askUncharged);
  const openFiles = async (stop: AbortSignal): Promise<OpenFiles> => {
    const client = await session(stop);
    return client ? sftpFiles({ client, stat: statOf, within }) : withoutSftp;
  };
  return {
    async readFile(path, { maxBytes = defaultMaxBytes, signal } = {}) {
      const kept = maxBytes + 1;
      const data = await ask(path, `gl_read ${quote(path)} ${kept}`, { maxBytes: kept, ...(signal && { signal }) });
      if (data.length > maxBytes)
        throw new CodedError("resource_exhausted", `${path} is larger than ${maxBytes} bytes`);
      return data;
    },
    open: async (path, { noFollow = false, signal } = {}) => {
      const stop = within(signal);
      return (await openFiles(stop)).open(path, noFollow, stop);
    },
    readTail: (path, bytes, signal) =>
      ask(path, `gl_tail ${quote(path)} ${bytes}`, {
        maxBytes: Math.max(bytes, shortBytes),
        ...(signal && { signal }),
      }),
    list: async (path, signal) =>
      parseEntries(
        path,
        await ask(path, `gl_list ${quote(path)}`, { maxBytes: maxListingBytes, ...(signal && { signal }) }),
      ),
    stat: (path, signal) => statOf(path, true, signal),
    lstat: (path, signal) => statOf(path, false, signal),
    async readlink(path, signal) {
      const stop = within(signal);
      return (await openFiles(stop)).readlink(path, stop);
    },
    async realpath(path, signal) {
      const stop = within(signal);
      return (await openFiles(stop)).realpath(path, stop);
    },
    async fileSystemInfo(path, signal) {
      const stop = within(signal);
      return (await openFiles(stop)).fileSystemInfo(path, stop);
    },
    async apply(changes, signal) {
      if (changes.length === 0) return throwIfAborted(signal);
      await applyChanges({ pool, runInOwnSession }, changes, within(signal));
    },
  };
}

async function applyChanges(
  { pool, runInOwnSession }: Pick<FsOptions, "pool" | "runInOwnSession">,
  changes: readonly FileChange[],
  stop: AbortSignal,
): Promise<void> {
  const script = applyScript(changes);
  if (script.length > maxPooledScriptBytes) {
    const { stdout, stderr } = await runInOwnSession(asProgram(script), stop);
    return throwFirstFailure(changes, Number(stdout.toString("latin1").trim()), stderr);
  }
  const { words, stderr } = await pool.run({ script, outcome: changesMade, maxBytes: shortBytes }, stop);
  throwFirstFailure(changes, Number(words[0]), stderr);
}

function outputOf(path: string, { stdout, stderr, words }: ShellResult): Buffer {
  if (words[0] !== "0") throw commandError(path, stderr.toString("utf8"));
  return stdout;
}

/** Wraps the script as a complete program whose last line of output is the number of changes made. */
function asProgram(script: string): string {
  return `${prelude()}\n{ ${script}\n} </dev/null\necho ${changesMade}\n`;
}

/** Checks how many changes were made. @throws the error of the first change that failed, if any. */
function throwFirstFailure(changes: readonly FileChange[], made: number, stderr: Buffer): void {
  const failed = changes[Number.isInteger(made) ? made : 0];
  if (!failed) return;
  const error = commandError(changePath(failed), stderr.toString("utf8"));
  throw failed.kind === "mountTmpfs" ? new CodedError("failed_precondition", error.message, { cause: error }) : error;
}
