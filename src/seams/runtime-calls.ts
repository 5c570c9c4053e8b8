import type { Runtime } from "./runtime.ts";

/** Members of Runtime that are unary CRI calls. */
export const runtimeCalls = [
  "version",
  "status",
  "runtimeConfig",
  "updateRuntimeConfig",
  "runPodSandbox",
  "stopPodSandbox",
  "removePodSandbox",
  "podSandboxStatus",
  "listPodSandbox",
  "updatePodSandboxResources",
  "createContainer",
  "startContainer",
  "stopContainer",
  "removeContainer",
  "listContainers",
  "containerStatus",
  "updateContainerResources",
  "reopenContainerLog",
  "execSync",
  "checkpointContainer",
  "exec",
  "attach",
  "portForward",
  "listImages",
  "imageStatus",
  "pullImage",
  "removeImage",
  "imageFsInfo",
  "containerStats",
  "listContainerStats",
  "podSandboxStats",
  "listPodSandboxStats",
] as const satisfies readonly (keyof Runtime)[];

export type RuntimeCall = (typeof runtimeCalls)[number];

/** Members of Runtime that are not CRI calls, or that return a stream. */
const otherMembers: Readonly<Record<Exclude<keyof Runtime, RuntimeCall>, true>> = {
  events: true,
  logs: true,
  logRoots: true,
  unsupportedReason: true,
  lastAliveAt: true,
  ownedResources: true,
  [Symbol.asyncDispose]: true,
};

/** Wraps every unary call of a runtime. Absent members stay absent; the runtime may be a class instance. */
export function wrapCalls(
  runtime: Runtime,
  around: (name: RuntimeCall, call: () => Promise<unknown>) => Promise<unknown>,
): Runtime {
  const calls = runtimeCalls.flatMap((name) => {
    const call = runtime[name] as Call | undefined;
    const bound = call?.bind(runtime);
    return bound ? [[name, (...given: never[]) => around(name, () => bound(...given))] as const] : [];
  });
  return { ...runtime, ...bindOtherMembers(runtime), ...(Object.fromEntries(calls) as Partial<Runtime>) };
}

type Call = (...given: never[]) => Promise<unknown>;

function bindOtherMembers(runtime: Runtime): Partial<Runtime> {
  const names = Reflect.ownKeys(otherMembers) as (keyof typeof otherMembers)[];
  return Object.fromEntries(
    names.flatMap((name) => {
      const call = runtime[name] as ((...given: never[]) => unknown) | undefined;
      return call ? [[name, call.bind(runtime)] as const] : [];
    }),
  );
}
