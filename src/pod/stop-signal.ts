import { Signal } from "../gen/cri.ts";
import type { Container } from "../objects.ts";

/** The stop signal of a container for CRI's CreateContainer. Without one in the spec, the runtime uses the image's, or SIGTERM.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-stop-signals */
export function stopSignalOf({ lifecycle }: Pick<Container, "lifecycle">): Signal {
  return signalNamed(lifecycle?.stopSignal ?? "");
}

/** Kubernetes' and Docker's name of a CRI signal, such as `SIGUSR1` or `SIGRTMIN+1`; undefined for the runtime's default. */
export function signalName(signal: Signal): string | undefined {
  if (signal === Signal.RUNTIME_DEFAULT || signal === Signal.UNRECOGNIZED) return undefined;
  const name = Object.entries(Signal).find(([, value]) => value === signal)?.[0];
  return name?.replace("PLUS", "+").replace("MINUS", "-");
}

/** The CRI signal with a name such as `SIGRTMIN+1`; the runtime's default for any other text. */
export function signalNamed(name: string): Signal {
  const found = Object.values(Signal).find((signal) => signalName(signal) === name);
  return found ?? Signal.RUNTIME_DEFAULT;
}
