import { Writable } from "node:stream";
import { type ContainerStatus, ContainerState } from "../gen/cri.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { LogReader } from "../pipeline.ts";
import { terminationMessagePathAnnotation, terminationMessagePolicyAnnotation } from "../pod/labels.ts";
import type { HostFs } from "../seams/host.ts";

/** Bytes kept of a message file, bytes and lines kept of a log that takes its place. */
const maxFileBytes = 4096;
const maxLogBytes = 2048;
const maxLogLines = 80;

export interface TerminationMessageDeps {
  readonly fs: Pick<HostFs, "open">;
  readonly logs: LogReader;
}

/** What a container that has ended says about why: the end of its message file, or, where the spec wants that and the
 *  container failed in silence, the end of its log. The runtime's own message comes first.
 *  @throws only when the signal aborts; what cannot be read becomes the message.
 *  @see https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/#customizing-the-termination-message */
export async function readTerminationMessage(
  deps: TerminationMessageDeps,
  status: ContainerStatus,
  signal: AbortSignal,
): Promise<string> {
  if (status.state !== ContainerState.CONTAINER_EXITED) return status.message;
  const written = await messageFile(deps.fs, status, signal);
  const message = written === "" && wantsLog(status) ? await endOfLog(deps.logs, status, signal) : written;
  return [status.message, message].filter((part) => part !== "").join(": ");
}

/** A container that could not even be started has no log worth reading. */
function wantsLog({ annotations, exitCode, reason }: ContainerStatus): boolean {
  return (
    annotations[terminationMessagePolicyAnnotation] === "FallbackToLogsOnError" &&
    exitCode !== 0 &&
    reason !== "ContainerCannotRun"
  );
}

/** The container chose the file's content, and may have chosen its kind: links are not followed, pipes are not waited for. */
async function messageFile(
  fs: TerminationMessageDeps["fs"],
  { annotations, mounts }: ContainerStatus,
  signal: AbortSignal,
): Promise<string> {
  const path = annotations[terminationMessagePathAnnotation];
  const mount = path ? mounts.find(({ containerPath }) => containerPath === path) : undefined;
  if (!mount) return "";
  try {
    await using file = await fs.open(mount.hostPath, { noFollow: true, signal });
    const { size } = await file.stat(signal);
    const data = await file.read(Math.max(0, size - maxFileBytes), maxFileBytes, signal);
    return data.toString();
  } catch (error) {
    signal.throwIfAborted();
    if (hasCode(error, "not_found")) return "";
    return `Error on reading termination log ${mount.hostPath}: ${messageOf(error)}`;
  }
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
  try {
    await logs.read({ containerId: id, logPath }, options, out, signal);
    return tail.toString();
  } catch (error) {
    signal.throwIfAborted();
    return `Error on reading termination message from logs: ${messageOf(error)}`;
  }
}
