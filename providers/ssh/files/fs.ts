import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError, throwIfAborted } from "../../../src/lib/errors.ts";
import type { TargetBudget } from "../../../src/lib/target-budget.ts";
import type { FileChange, FileInfo, FileSystemInfo, HostFs } from "../../../src/seams/host.ts";
import { applyScript, changesMade, pathOf } from "./apply-script.ts";
import { parseEntries, parseStat, statFormat } from "./file-info.ts";
import { prelude } from "../shell/prelude.ts";
import { quote } from "../shell/quote.ts";
import { type Ended, scriptLimit } from "../process/command.ts";
import type { SftpClient, SftpRequest } from "./sftp-client.ts";
import { openFile } from "./sftp-file.ts";
import { type Reply, expectReply, sftp, textAt } from "./sftp-packets.ts";
import type { Answer } from "../shell/shell.ts";
import type { ShellPool } from "../shell/shell-pool.ts";
import { complaint } from "../shell/system-errors.ts";

export interface FsOptions {
  readonly pool: ShellPool;
  /** The SFTP session, opened on first use. */
  readonly sftp: (signal: AbortSignal) => Promise<SftpClient>;
  /** Runs a script that is too long for a pooled shell. */
  readonly runAlone: (script: string, signal: AbortSignal) => Promise<Ended>;
  /** Budget that is charged for the content of files and directories. */
  readonly budget?: TargetBudget;
  readonly clock: Clock;
}

const defaultMaxBytes = 4 * 1024 * 1024;
/** Default timeout of an operation, milliseconds: a file system of the target may hang (NFS). */
const timeoutMs = 60_000;
const listingBytes = 32 * 1024 * 1024;
const shortBytes = 64 * 1024;

/** The target's files. Shell commands are used where SFTP lacks information (inodes, reasons of errors) or needs several round
 *  trips; SFTP is used for the rest, and for open files. */
export function sshFs({ pool, sftp: session, runAlone, budget, clock }: FsOptions): HostFs {
  const within = (signal?: AbortSignal) => {
    throwIfAborted(signal);
    return clock.within(timeoutMs, signal);
  };
  const ask = async (
    path: string,
    call: string,
    options: { maxBytes?: number; signal?: AbortSignal },
  ): Promise<Buffer> => {
    const question = { script: call, maxBytes: options.maxBytes ?? shortBytes };
    const answer = answerOf(path, await pool.ask(question, within(options.signal)));
    budget?.spend(answer.length);
    return answer;
  };
  const exchange = async (requests: readonly SftpRequest[], signal?: AbortSignal): Promise<readonly Reply[]> => {
    const stop = within(signal);
    return (await session(stop)).exchange(requests, stop);
  };
  const statOf = async (path: string, follow: boolean, signal?: AbortSignal): Promise<FileInfo> => {
    const call = `stat ${follow ? "-L " : ""}-c ${quote(statFormat)} -- ${quote(path)}`;
    return parseStat((await ask(path, call, { ...(signal && { signal }) })).toString("latin1"));
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
      return openFile({ path, noFollow, client: await session(stop), stat: statOf, within }, stop);
    },
    readEnd: (path, bytes, signal) =>
      ask(path, `gl_end ${quote(path)} ${bytes}`, { maxBytes: Math.max(bytes, shortBytes), ...(signal && { signal }) }),
    list: async (path, signal) =>
      parseEntries(
        path,
        await ask(path, `gl_list ${quote(path)}`, { maxBytes: listingBytes, ...(signal && { signal }) }),
      ),
    stat: (path, signal) => statOf(path, true, signal),
    lstat: (path, signal) => statOf(path, false, signal),
    async readlink(path, signal) {
      const [reply] = await exchange([[sftp.readlink, path]], signal);
      return nameIn(reply, path);
    },
    async realpath(path, signal) {
      // The server also resolves paths whose last part is missing, so check that it exists.
      const [reply, there] = await exchange(
        [
          [sftp.realpath, path],
          [sftp.stat, path],
        ],
        signal,
      );
      if (there) expectReply(there, sftp.attrs, path);
      return nameIn(reply, path);
    },
    async freeSpace(path, signal) {
      const [reply] = await exchange([[sftp.extended, "statvfs@openssh.com", path]], signal);
      return spaceIn(reply, path);
    },
    async apply(changes, signal) {
      if (changes.length === 0) return throwIfAborted(signal);
      await makeChanges({ pool, runAlone }, changes, within(signal));
    },
  };
}

async function makeChanges(
  { pool, runAlone }: Pick<FsOptions, "pool" | "runAlone">,
  changes: readonly FileChange[],
  stop: AbortSignal,
): Promise<void> {
  const script = applyScript(changes);
  if (script.length > scriptLimit) {
    const { stdout, stderr } = await runAlone(alone(script), stop);
    return failedAt(changes, Number(stdout.toString("latin1").trim()), stderr);
  }
  const { words, stderr } = await pool.ask({ script, outcome: changesMade, maxBytes: shortBytes }, stop);
  failedAt(changes, Number(words[0]), stderr);
}

function answerOf(path: string, { stdout, stderr, words }: Answer): Buffer {
  if (words[0] !== "0") throw complaint(path, stderr.toString("utf8"));
  return stdout;
}

/** Wraps the script as a complete program whose last line of output is the number of changes made. */
function alone(script: string): string {
  return `${prelude()}\n{ ${script}\n} </dev/null\necho ${changesMade}\n`;
}

/** @throws the failure of the first change that was not made, if any. */
function failedAt(changes: readonly FileChange[], made: number, stderr: Buffer): void {
  const failed = changes[Number.isInteger(made) ? made : 0];
  if (failed) throw complaint(pathOf(failed), stderr.toString("utf8"));
}

function nameIn(reply: Reply | undefined, path: string): string {
  if (!reply) throw new CodedError("unknown", `${path}: no reply`);
  return textAt(expectReply(reply, sftp.name, path), 4).toString("utf8");
}

/** @see https://github.com/openssh/openssh-portable/blob/master/PROTOCOL statvfs@openssh.com */
function spaceIn(reply: Reply | undefined, path: string): FileSystemInfo {
  if (!reply) throw new CodedError("unknown", `${path}: no reply`);
  const body = expectReply(reply, sftp.extendedReply, path);
  const word = (index: number) => Number(body.readBigUInt64BE(index * 8));
  const fragment = word(1);
  return {
    capacityBytes: word(2) * fragment,
    availableBytes: word(4) * fragment,
    usedBytes: (word(2) - word(3)) * fragment,
    inodes: word(5),
    inodesFree: word(6),
  };
}
