import { converse } from "./conversation.ts";
import { start } from "./processes.ts";

/** Waits until no other process makes the same: of all that ask with one file, one at a time has its turn. The lock ends with its
 *  holder, and that with this process. */
export async function turn(file: string): Promise<AsyncDisposable> {
  const holder = converse(start(["flock", file, "sh", "-c", "echo ours; exec cat"]));
  await holder.says("ours", 1_200_000);
  return {
    async [Symbol.asyncDispose]() {
      holder.endInput();
      await holder.ended();
    },
  };
}
