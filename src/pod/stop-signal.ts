import { Signal } from "../gen/cri.ts";
import type { Container } from "../objects.ts";

/** The signal that ends a container, as CRI's CreateContainer takes it; the image's, or SIGTERM, if its spec names none.
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
