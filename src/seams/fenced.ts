import type { Host } from "./host.ts";
import type { Target } from "./provider.ts";
import { type RuntimeCall, wrapCalls } from "./runtime-calls.ts";

/** Tracks whether this process still owns the target exclusively (it holds the lock on the root directory). */
export interface Fence {
  /** True while ownership is certain. Cheap: checked before every change. */
  isVerified(): boolean;
  /** Resolves once ownership is confirmed. @throws unavailable when it is lost for good; the signal's reason. */
  verify(signal?: AbortSignal): Promise<void>;
}

/** Runtime calls without side effects. */
const readOnlyCalls: ReadonlySet<RuntimeCall> = new Set<RuntimeCall>([
  "version",
  "status",
  "runtimeConfig",
  "podSandboxStatus",
  "listPodSandbox",
  "listContainers",
  "containerStatus",
  "listImages",
  "imageStatus",
  "imageFsInfo",
  "containerStats",
  "listContainerStats",
  "podSandboxStats",
  "listPodSandboxStats",
]);

/** Wraps a target so that files are changed, commands run, connections opened and mutating runtime calls made only while
 *  ownership is verified. Until ownership is confirmed these calls wait; once it is lost they fail with unavailable. Read-only calls pass through.
 *  @param signal cancels all waiting calls. */
export function fencedTarget<T extends Pick<Target, "host" | "runtime">>(
  target: T,
  fence: Fence,
  signal: AbortSignal,
): T {
  const guarded = async <R>(call: () => Promise<R>): Promise<R> => {
    if (!fence.isVerified()) await fence.verify(signal);
    return call();
  };
  return { ...target, host: fencedHost(target.host, guarded), runtime: fencedRuntime(target.runtime, guarded) };
}

type Guarded = <R>(call: () => Promise<R>) => Promise<R>;

function fencedRuntime(runtime: Target["runtime"], guarded: Guarded): Target["runtime"] {
  return wrapCalls(runtime, (name, call) => (readOnlyCalls.has(name) ? call() : guarded(call)));
}

function fencedHost(host: Host, guarded: Guarded): Host {
  const { listen } = host;
  return {
    ...host,
    fs: { ...host.fs, apply: (...given) => guarded(() => host.fs.apply(...given)) },
    run: (...given) => guarded(() => host.run(...given)),
    spawn: (...given) => guarded(() => host.spawn(...given)),
    dial: (...given) => guarded(() => host.dial(...given)),
    ...(listen && { listen: (...given) => guarded(() => listen(...given)) }),
  };
}
