import type { Pod } from "../objects.ts";
import { isSidecar } from "../pod/containers.ts";
import { type PodAdmitHandler, predicateFailed } from "./admit-attributes.ts";

interface HostPort {
  readonly ip: string;
  readonly protocol: string;
  readonly port: number;
}

const anyAddress = "0.0.0.0";

/** Rejects a pod whose host ports are in use by another pod. */
export const hostPortsFree: PodAdmitHandler = ({ pod, otherPods }) => {
  const taken = otherPods.flatMap(hostPorts);
  const clash = hostPorts(pod).some((wanted) => taken.some((other) => overlap(wanted, other)));
  return clash ? predicateFailed("NodePorts", "node(s) didn't have free ports for the requested pod ports") : undefined;
};

function overlap(a: HostPort, b: HostPort): boolean {
  const sameAddress = a.ip === b.ip || a.ip === anyAddress || b.ip === anyAddress;
  return sameAddress && a.port === b.port && a.protocol === b.protocol;
}

/** Host ports of sidecars and main containers, which run at the same time. */
function hostPorts({ spec }: Pod): readonly HostPort[] {
  return [...(spec.initContainers ?? []).filter(isSidecar), ...spec.containers].flatMap(({ ports = [] }) =>
    ports.flatMap(({ hostIP, hostPort, protocol }) =>
      hostPort ? [{ ip: hostIP || anyAddress, protocol: protocol || "TCP", port: hostPort }] : [],
    ),
  );
}
