import { findHelm, withOwnHome } from "../../test/harness/helm.ts";
import { must } from "../../test/harness/processes.ts";
import { type RuntimeRig, startRuntimeRig } from "../../test/harness/runtime-rig.ts";
import { type LoopbackRegistry, startLoopbackRegistry } from "./loopback.ts";

/** Where a release is tried: a Docker Engine, and an empty registry on the loopback of a network of their own. */
export interface ReleaseLab extends LoopbackRegistry, AsyncDisposable {
  readonly rig: RuntimeRig;
  /** Runs helm as somebody who has nothing but it. */
  helm(...args: readonly string[]): Promise<string>;
  docker(...args: readonly string[]): Promise<string>;
}

/** Starts it. It is gone when disposed of, or when this process ends. */
export async function startReleaseLab(): Promise<ReleaseLab> {
  const helm = await findHelm();
  await using stack = new AsyncDisposableStack();
  const rig = stack.use(await startRuntimeRig("release", "docker", { kit: { programs: [], images: [] } }));
  const { layout, tools, daemons } = rig;
  const registry = await startLoopbackRegistry({ layout, tools, startDaemon: daemons.start }, helm);
  const whole = stack.move();
  return {
    ...registry,
    rig,
    helm: (...args) => must(withOwnHome(layout, [helm, ...args])),
    docker: (...args) =>
      must([tools.path("docker"), "--host", `unix://${layout.dockerSocket}`, ...args], { timeoutMs: 180_000 }),
    [Symbol.asyncDispose]: () => whole.disposeAsync(),
  };
}
