import { lstat } from "node:fs/promises";
import { CodedError } from "../../src/lib/errors.ts";

/** Returns a function that wraps a command so that it runs on the machine from a privileged Pod, with the machine's programs, files and
 *  mounts. The Pod has to share the machine's PID namespace.
 *  @param pid of a process in the machine's mount namespace: 1 in a Pod.
 *  @returns a function that rejects with not_found if the machine has no such program.
 *  @see https://man7.org/linux/man-pages/man1/nsenter.1.html */
export function nsenterFromPod(pid: number): (argv: readonly string[]) => Promise<readonly string[]> {
  return async (argv) => {
    const [program] = argv;
    if (program === undefined) return argv;
    const folders = program.includes("/") ? [""] : (process.env["PATH"] ?? "").split(":").map((folder) => `${folder}/`);
    const looks = folders.map((folder) => lstat(`/proc/${pid}/root${folder}${program}`));
    if ((await Promise.allSettled(looks)).every(({ status }) => status === "rejected"))
      throw new CodedError("not_found", `${program}: the machine has no such program`);
    return ["nsenter", "--target", String(pid), "--mount", "--", ...argv];
  };
}

/** Reads `providerConfig.inPod` of the providers for the local machine.
 *  @throws CodedError invalid_argument, a sentence with the field and the remedy. */
export function readInPod(value: unknown): boolean {
  if (value === undefined) return false;
  if (typeof value === "boolean") return value;
  throw new CodedError(
    "invalid_argument",
    `providerConfig.inPod is ${JSON.stringify(value)}: write true if graftlet runs in a privileged Pod on the machine, or remove it.`,
  );
}
