import { Worker, isMainThread, parentPort } from "node:worker_threads";
import type { Clock } from "../lib/clock.ts";
import { CodedError, abortError, hasCode, messageOf } from "../lib/errors.ts";
import { unusable } from "./manifest.ts";
import { type Manifest, manifestPods } from "./manifest-pods.ts";
import type { StaticPod } from "./static-pod.ts";

/** Reads manifests where that holds up nobody. */
export interface ManifestReader extends AsyncDisposable {
  /** @throws CodedError invalid_argument, a sentence: why there are no pods in it; what the signal aborted with. */
  read(manifest: Manifest, signal: AbortSignal): Promise<readonly StaticPod[]>;
}

/** Characters that one reader reads at once, where all else waits: a twentieth of a second at worst. */
const atOnce = 16 * 1024;
/** Bounds of a thread: MiB, and milliseconds for each manifest. YAML as pods have it takes a tenth of both. */
const bounds = { MiB: 128, ms: 30_000 };

type Answer = { readonly pods: readonly StaticPod[] } | { readonly fault: string };

/** More than a few small manifests are read in a thread that ends with the reader, within bounds of time and memory. */
export function openManifestReader(clock: Clock, { MiB, ms } = bounds): ManifestReader {
  let room = atOnce;
  let thread: Worker | undefined;
  const end = async () => {
    const ending = thread;
    thread = undefined;
    await ending?.terminate();
  };
  return {
    async read(manifest, signal) {
      if (manifest.text.length <= room) {
        room -= manifest.text.length;
        return manifestPods(manifest);
      }
      thread ??= startThread(MiB);
      const deadline = clock.within(ms, signal);
      const answer = await answerOf(thread, manifest, deadline).catch(async (error: unknown) => {
        await end();
        if (signal.aborted) throw abortError(signal);
        if (hasCode(error, "deadline_exceeded")) throw tooMuch(`${ms} ms`);
        if (error instanceof Error && "code" in error && error.code === "ERR_WORKER_OUT_OF_MEMORY")
          throw tooMuch(`${MiB} MiB of memory`);
        throw error;
      });
      if ("fault" in answer) throw unusable(answer.fault);
      return answer.pods;
    },
    [Symbol.asyncDispose]: end,
  };
}

/** The thread runs this file. In the built program, of which it is a part, `main` hands over to it. */
function startThread(maxOldGenerationSizeMb: number): Worker {
  const thread = new Worker(new URL(import.meta.url), { resourceLimits: { maxOldGenerationSizeMb } });
  // One that fails while nobody waits for it is nobody's failure.
  return thread.on("error", () => undefined);
}

function tooMuch(most: string): CodedError {
  return unusable(`it takes more than ${most} to read: make it smaller, or write it as JSON`);
}

async function answerOf(thread: Worker, manifest: Manifest, signal: AbortSignal): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const onAbort = () => reject(abortError(signal));
  const onExit = (code: number) => reject(new CodedError("unknown", `the thread that reads it ended with ${code}`));
  signal.addEventListener("abort", onAbort);
  thread.on("message", resolve).on("error", reject).on("exit", onExit);
  try {
    thread.postMessage(manifest, []);
    return await promise;
  } finally {
    signal.removeEventListener("abort", onAbort);
    thread.off("message", resolve).off("error", reject).off("exit", onExit);
  }
}

/** The thread's own side: an answer for each manifest, in order. */
function serve(): void {
  parentPort?.on("message", (manifest: Manifest) => {
    let answer: Answer;
    try {
      answer = { pods: manifestPods(manifest) };
    } catch (error) {
      answer = { fault: messageOf(error) };
    }
    parentPort?.postMessage(answer, []);
  });
}

if (!isMainThread) serve();
