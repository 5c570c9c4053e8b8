import { Worker, isMainThread, parentPort } from "node:worker_threads";
import type { Clock } from "../lib/clock.ts";
import { CodedError, abortError, hasCode, messageOf } from "../lib/errors.ts";
import { unusable, expectKind, manifestObject } from "./manifest.ts";
import { type StaticPod, type ManifestOrigin, staticPod } from "./static-pod.ts";
import { untilAborted } from "../lib/runnables.ts";
import { isRecord } from "../lib/record.ts";
import type { Fields } from "./pod-fields.ts";

/** Parses manifests without blocking the process. */
export type ManifestReader = ReturnType<typeof openManifestReader>;

/** Maximum number of characters that one reader parses on the main thread, which takes at most 50 ms. */
const maxInlineCharacters = 16 * 1024;
/** Limits of a thread: MiB, and milliseconds for each manifest. Typical pods in YAML need a tenth of either limit. */
const threadLimits = { MiB: 128, ms: 30_000 };

type ParseResult = { readonly pods: readonly StaticPod[] } | { readonly fault: string };

/** Opens a reader. It parses a few small manifests on the main thread; further ones in a thread with limits of time and memory, which
 *  ends with the reader. */
export function openManifestReader(clock: Clock, { MiB, ms } = threadLimits) {
  let room = maxInlineCharacters;
  let thread: Worker | undefined;
  const end = async () => {
    const ending = thread;
    thread = undefined;
    await ending?.terminate();
  };
  return {
    /** @throws CodedError invalid_argument, a sentence: why the text contains no pods; the signal's reason. */
    async read(manifest: Manifest, signal: AbortSignal): Promise<readonly StaticPod[]> {
      if (manifest.text.length <= room) {
        room -= manifest.text.length;
        return manifestPods(manifest);
      }
      thread ??= startThread(MiB);
      const deadline = clock.within(ms, signal);
      const answer = await parseInThread(thread, manifest, deadline).catch(async (error: unknown) => {
        await end();
        if (signal.aborted) throw abortError(signal);
        if (hasCode(error, "deadline_exceeded")) throw limitExceeded(`${ms} ms`);
        if (error instanceof Error && "code" in error && error.code === "ERR_WORKER_OUT_OF_MEMORY")
          throw limitExceeded(`${MiB} MiB of memory`);
        throw error;
      });
      if ("fault" in answer) throw unusable(answer.fault);
      return answer.pods;
    },
    [Symbol.asyncDispose]: end,
  };
}

/** The thread runs this file. In the built program, which contains it, `main` passes control to it. */
function startThread(maxOldGenerationSizeMb: number): Worker {
  const thread = new Worker(new URL(import.meta.url), { resourceLimits: { maxOldGenerationSizeMb } });
  // A failure without a pending request is ignored.
  return thread.on("error", () => undefined);
}

function limitExceeded(most: string): CodedError {
  return unusable(`parsing it takes more than ${most}: make it smaller, or write it as JSON`);
}

async function parseInThread(thread: Worker, manifest: Manifest, signal: AbortSignal): Promise<ParseResult> {
  const { promise, resolve, reject } = Promise.withResolvers<ParseResult>();
  const onExit = (code: number) => reject(new CodedError("unknown", `the parser thread exited with code ${code}`));
  thread.on("message", resolve).on("error", reject).on("exit", onExit);
  try {
    thread.postMessage(manifest, []);
    return await untilAborted(promise, signal);
  } finally {
    thread.off("message", resolve).off("error", reject).off("exit", onExit);
  }
}

/** The thread's side: a response for each manifest, in order. */
function serve(): void {
  parentPort?.on("message", (manifest: Manifest) => {
    let answer: ParseResult;
    try {
      answer = { pods: manifestPods(manifest) };
    } catch (error) {
      answer = { fault: messageOf(error) };
    }
    parentPort?.postMessage(answer, []);
  });
}

if (!isMainThread) serve();

interface Manifest {
  readonly text: string;
  readonly origin: ManifestOrigin;
  /** True if a PodList is accepted as well as a single pod. */
  readonly lists: boolean;
}

/** The pods of a manifest. One invalid pod invalidates the list, because the intent of the others is uncertain. Pure. @throws CodedError
 *  invalid_argument, a sentence. */
export function manifestPods({ text, origin, lists }: Manifest): readonly StaticPod[] {
  const object = manifestObject(text);
  if (lists && object["kind"] === "PodList") return listedPods(object, origin);
  expectKind(object, "Pod");
  return [staticPod(object, origin)];
}

function listedPods(object: Fields, origin: ManifestOrigin): readonly StaticPod[] {
  expectKind(object, "PodList");
  const items = object["items"] ?? [];
  if (!Array.isArray(items)) throw unusable("the items field of its PodList is not a list");
  const uids = new Set<string>();
  const pods = items.map((item: unknown, index) => {
    if (!isRecord(item)) throw unusable(`items[${index}] of its PodList is not a pod`);
    try {
      return staticPod(item, origin);
    } catch (cause) {
      throw unusable(`items[${index}] of its PodList: ${messageOf(cause)}`, { cause });
    }
  });
  for (const [index, { pod }] of pods.entries()) {
    if (uids.has(pod.metadata.uid))
      throw unusable(`items[${index}] of its PodList: another pod in the list has the same metadata.uid`);
    uids.add(pod.metadata.uid);
  }
  return pods;
}
