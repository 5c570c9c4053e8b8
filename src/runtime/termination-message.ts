import { Writable } from "node:stream";
import { type ContainerStatus, ContainerState } from "../gen/cri.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { LogReader } from "../pipeline.ts";
import { terminationMessagePathAnnotation, terminationMessagePolicyAnnotation } from "../pod/labels.ts";
import type { HostFs } from "../seams/host.ts";

/** Maximum bytes read of a message file, and maximum bytes and lines of a log read instead. */
const maxFileBytes = 4096;
const maxLogBytes = 2048;
const maxLogLines = 80;

export interface TerminationMessageDeps {
  readonly fs: Pick<HostFs, "readTail">;
  readonly logs: LogReader;
}

/** Current content of the container's message file; undefined if it has none, or it cannot be read. */
export async function readWrittenMessage(
  { fs }: Pick<TerminationMessageDeps, "fs">,
  { annotations, mounts }: ContainerStatus,
  signal: AbortSignal,
): Promise<string | undefined> {
  const path = messagePath(annotations, mounts);
  if (path === undefined) return undefined;
  return fs.readTail(path, maxFileBytes, signal).then(String, () => undefined);
}

/** The termination message of an exited container: the runtime's message, then the end of the message file. With FallbackToLogsOnError and
 *  an empty file after a failure, the end of the log is used.
 *  @param read content of the message file, if it was read after the exit.
 *  @throws only when the signal aborts; read errors become the message.
 *  @see https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/#customizing-the-termination-message */
export async function readTerminationMessage(
  deps: TerminationMessageDeps,
  status: ContainerStatus,
  signal: AbortSignal,
  read?: string,
): Promise<string> {
  if (status.state !== ContainerState.CONTAINER_EXITED) return status.message;
  const written = read ?? (await messageFile(deps.fs, status, signal));
  const message = written === "" && wantsLog(status) ? await endOfLog(deps.logs, status, signal) : written;
  return [status.message, message].filter((part) => part !== "").join(": ");
}

/** ContainerCannotRun means that the container never started, so it has no useful log. */
function wantsLog({ annotations, exitCode, reason }: ContainerStatus): boolean {
  return (
    annotations[terminationMessagePolicyAnnotation] === "FallbackToLogsOnError" &&
    exitCode !== 0 &&
    reason !== "ContainerCannotRun"
  );
}

/** Reads a file whose type and content the container controls: links are not followed, and pipes are not waited for. */
async function messageFile(
  fs: TerminationMessageDeps["fs"],
  { annotations, mounts }: ContainerStatus,
  signal: AbortSignal,
): Promise<string> {
  const path = messagePath(annotations, mounts);
  if (path === undefined) return "";
  try {
    return (await fs.readTail(path, maxFileBytes, signal)).toString();
  } catch (error) {
    signal.throwIfAborted();
    if (hasCode(error, "not_found")) return "";
    return `Error on reading termination log ${path}: ${messageOf(error)}`;
  }
}

/** Path of the message file on the target. */
function messagePath(
  annotations: ContainerStatus["annotations"],
  mounts: ContainerStatus["mounts"],
): string | undefined {
  const path = annotations[terminationMessagePathAnnotation];
  return path ? mounts.find(({ containerPath }) => containerPath === path)?.hostPath : undefined;
}

async function endOfLog(logs: LogReader, { id, logPath }: ContainerStatus, signal: AbortSignal): Promise<string> {
  const options = { follow: false, timestamps: false, previous: false, tailLines: maxLogLines, stream: "All" as const };
  let tail: Buffer = Buffer.alloc(0);
  const out = new Writable({
    write(chunk: Buffer, _encoding, done) {
      tail = Buffer.concat([tail, chunk]).subarray(-maxLogBytes);
      done();
    },
  });
  out.on("error", () => undefined);
  try {
    await logs.read({ containerId: id, logPath }, options, out, signal);
    return tail.toString();
  } catch (error) {
    signal.throwIfAborted();
    return `Error on reading termination message from logs: ${messageOf(error)}`;
  }
}
