import type { Host } from "./host.ts";
import type { Target } from "./provider.ts";
import { type RuntimeCall, aroundCalls } from "./runtime-calls.ts";

/** Knows whether a target is still this process's alone. */
export interface Fence {
  /** True if it certainly is. Cheap: asked before every change. */
  isProved(): boolean;
  /** Resolves once it is. @throws unavailable when it is not any more; the signal's reason. */
  prove(signal?: AbortSignal): Promise<void>;
}

/** Calls that change nothing in a runtime. */
const readingCalls: ReadonlySet<RuntimeCall> = new Set<RuntimeCall>([
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

/** The same target, whose runtime and files are changed, and whose commands are run, only while the fence stands: what comes when that is
 *  not known waits, and fails as unavailable once it has fallen. Calls that change nothing pass.
 *  @param signal ends all waiting. */
export function fencedTarget<T extends Pick<Target, "host" | "runtime">>(
  target: T,
  fence: Fence,
  signal: AbortSignal,
): T {
  const guarded = async <R>(call: () => Promise<R>): Promise<R> => {
    if (!fence.isProved()) await fence.prove(signal);
    return call();
  };
  return { ...target, host: fencedHost(target.host, guarded), runtime: fencedRuntime(target.runtime, guarded) };
}

type Guarded = <R>(call: () => Promise<R>) => Promise<R>;

function fencedRuntime(runtime: Target["runtime"], guarded: Guarded): Target["runtime"] {
  return aroundCalls(runtime, (name, call) => (readingCalls.has(name) ? call() : guarded(call)));
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
