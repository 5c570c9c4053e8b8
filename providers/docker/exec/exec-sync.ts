import { CodedError, abortError } from "../../../src/lib/errors.ts";
import type { Containers } from "../../../src/seams/runtime.ts";
import { type ExecProcess, createExec, startExec } from "./process.ts";
import { BoundedOutput } from "./bounded-output.ts";
import type { DockerParts } from "../parts.ts";

/** Limit of each output, as in CRI. */
const maxOutputBytes = 16 * 1024 * 1024;

/** execSync over the Engine API. A command that exceeds its timeout, or whose caller gives up, is killed. */
export function dockerExec(parts: DockerParts): Pick<Containers, "execSync"> {
  return {
    async execSync(containerId, argv, timeoutSeconds, signal) {
      const options = { containerId, argv, tty: false, stdin: false, stdout: true, stderr: true };
      // Not part of the command's timeout: this call waits for the daemon.
      const id = await createExec(parts, options, signal);
      const until = timeoutSeconds > 0 ? parts.clock.within(timeoutSeconds * 1000, signal) : signal;
      const [stdout, stderr] = [new BoundedOutput(maxOutputBytes), new BoundedOutput(maxOutputBytes)];
      let running: ExecProcess | undefined;
      try {
        running = await startExec(parts, { id, tty: false }, until);
        await running.output({ stdout, stderr }, until);
        const exitCode = await running.ended(until);
        return { stdout: stdout.bytes(), stderr: stderr.bytes(), exitCode };
      } catch (error) {
        if (!until.aborted) throw error;
        await running?.kill("KILL");
        if (signal.aborted) throw abortError(signal);
        throw new CodedError("deadline_exceeded", `timeout ${timeoutSeconds}s exceeded`, { cause: error });
      } finally {
        running?.connection.destroy();
      }
    },
  };
}
