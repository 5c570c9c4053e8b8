import type { ContainerInfo, ContainerInspectInfo } from "dockerode";
import {
  LinuxPodSandboxStatus,
  NamespaceMode,
  PodSandbox,
  PodSandboxMetadata,
  PodSandboxNetworkStatus,
  PodSandboxState,
  PodSandboxStatus,
} from "../../../src/gen/cri.ts";
import { podNameLabel, podNamespaceLabel, podUidLabel } from "../../../src/pod/labels.ts";
import { criLabels } from "../container/labels.ts";
import { parseSandboxName, runtimeHandlerLabel } from "../container/names.ts";
import { nanoseconds, secondsToNanoseconds } from "../client/times.ts";

type Labels = Readonly<Record<string, string>>;

/** CRI status of a sandbox from its container's inspection.
 *  @param networkId the pods' network, whose address comes first. */
export function sandboxStatus(
  { Id, Name, Created, State, Config, HostConfig, NetworkSettings }: ContainerInspectInfo,
  networkId: string | undefined,
): PodSandboxStatus {
  const labels = Config.Labels ?? {};
  return PodSandboxStatus.fromPartial({
    id: Id,
    metadata: sandboxMetadata(Name, labels),
    state: sandboxState(State.Status),
    createdAt: nanoseconds(Created),
    network: PodSandboxNetworkStatus.fromPartial({ ip: sandboxAddress(NetworkSettings, networkId) }),
    linux: LinuxPodSandboxStatus.fromPartial({
      namespaces: {
        options: {
          network: HostConfig.NetworkMode === "host" ? NamespaceMode.NODE : NamespaceMode.POD,
          pid: HostConfig.PidMode === "host" ? NamespaceMode.NODE : NamespaceMode.CONTAINER,
          ipc: HostConfig.IpcMode === "host" ? NamespaceMode.NODE : NamespaceMode.POD,
        },
      },
    }),
    ...criLabels(labels),
    runtimeHandler: labels[runtimeHandlerLabel] ?? "",
  });
}

/** CRI sandbox from a list entry, with times to the second only. */
export function listedSandbox({ Id, Names, Created, State, Labels }: ContainerInfo): PodSandbox {
  return PodSandbox.fromPartial({
    id: Id,
    metadata: sandboxMetadata(Names[0] ?? "", Labels),
    state: sandboxState(State),
    createdAt: secondsToNanoseconds(Created),
    ...criLabels(Labels),
    runtimeHandler: Labels[runtimeHandlerLabel] ?? "",
  });
}

/** Metadata from the pod labels, or else from the name, which alone has the attempt. */
export function sandboxMetadata(name: string, labels: Labels): PodSandboxMetadata | undefined {
  const parsed = parseSandboxName(name);
  const uid = labels[podUidLabel] ?? parsed?.uid;
  const podName = labels[podNameLabel] ?? parsed?.name;
  const namespace = labels[podNamespaceLabel] ?? parsed?.namespace;
  if (uid === undefined || podName === undefined || namespace === undefined) return undefined;
  return PodSandboxMetadata.fromPartial({ name: podName, namespace, uid, attempt: parsed?.attempt ?? 0 });
}

/** Any sandbox that is not running is not ready. */
function sandboxState(status: string): PodSandboxState {
  return status === "running" ? PodSandboxState.SANDBOX_READY : PodSandboxState.SANDBOX_NOTREADY;
}

function sandboxAddress({ Networks }: ContainerInspectInfo["NetworkSettings"], networkId: string | undefined): string {
  const all = Object.values(Networks ?? {});
  return (all.find(({ NetworkID }) => NetworkID === networkId) ?? all[0])?.IPAddress ?? "";
}
