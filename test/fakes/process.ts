import { PassThrough } from "node:stream";
import { CodedError } from "../../src/lib/errors.ts";
import type { Host, HostProcess } from "../../src/seams/host.ts";

/** A command of a host that a test speaks for. */
export interface SpokenProcess {
  readonly process: HostProcess;
  readonly stdin: PassThrough;
  readonly stdout: PassThrough;
  /** Ends it. @param complaint on standard error. */
  end(complaint?: string): void;
}

export function spokenProcess(): SpokenProcess {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  const process: HostProcess = {
    pid: 1,
    stdin,
    stdout,
    stderr,
    exited: Promise.resolve(0),
    kill: () => undefined,
    [Symbol.asyncDispose]: async () => void stdout.destroy(),
  };
  const end = (complaint = "") => {
    stderr.end(complaint);
    stdout.end();
  };
  return { process, stdin, stdout, end };
}

/** A command, or why it does not start. */
export type Spawned = SpokenProcess | CodedError;

/** A host whose commands are these, one after the other. */
export function spawning(...given: readonly Spawned[]): Pick<Host, "spawn"> {
  const left = given.values();
  return {
    async spawn() {
      const next = left.next().value;
      if (!next || next instanceof CodedError) throw next ?? new CodedError("not_found", "no more");
      return next.process;
    },
  };
}
