import { constants } from "node:os";
import type { ContainerInspectInfo, HostConfig } from "dockerode";
import {
  type ContainerMetadata,
  ContainerResources,
  ContainerStatus,
  ImageSpec,
  Mount,
  MountPropagation,
  type Signal,
} from "../../../src/gen/cri.ts";
import { signalNamed } from "../../../src/pod/stop-signal.ts";
import { containerNameLabel, containerRestartCountAnnotation } from "../../../src/pod/labels.ts";
import { containerLifecycle } from "./state.ts";
import { imageRefOf } from "../image/reference.ts";
import { inspectImage } from "../image/inspect.ts";
import { type CriLabels, criLabels } from "./labels.ts";
import { containerType, imageLabel, logPathLabel, parseContainerName } from "./names.ts";
import { inspectOwn } from "./own.ts";
import type { DockerParts } from "../parts.ts";

/** Returns the CRI status of a container. @throws CodedError not_found, also for a container that is not this node's. */
export async function containerStatus(parts: DockerParts, id: string, signal: AbortSignal): Promise<ContainerStatus> {
  const found = await inspectOwn(parts, id, containerType, signal);
  const docker = found.Config.Labels ?? {};
  const requestedImage = docker[imageLabel] ?? found.Config.Image;
  const labels = criLabels(docker);
  return ContainerStatus.fromPartial({
    id: found.Id,
    metadata: containerMetadata(found.Name, labels),
    ...containerLifecycle(found),
    image: ImageSpec.fromPartial({ image: requestedImage, userSpecifiedImage: requestedImage }),
    imageRef: await imageRefFor(parts, found, requestedImage, signal),
    imageId: found.Image,
    ...labels,
    mounts: found.Mounts.map(criMount),
    logPath: docker[logPathLabel] ?? "",
    resources: criResources(found.HostConfig),
    stopSignal: stopSignal(found.Config),
  });
}

/** Returns the image reference of a container. It is looked up once, so later changes of the image's names have no effect. */
async function imageRefFor(
  parts: DockerParts,
  { Id, Image }: Pick<ContainerInspectInfo, "Id" | "Image">,
  requestedImage: string,
  signal: AbortSignal,
): Promise<string> {
  const cached = parts.facts.containers.get(Id);
  if (cached) return cached.imageRef;
  const image = await inspectImage(parts, Image, signal);
  if (!image) return Image;
  const imageRef = imageRefOf(image, requestedImage);
  parts.facts.containers.set(Id, { imageRef });
  return imageRef;
}

/** Returns the CRI name and attempt of a container; if it was renamed, they are read from its labels. */
export function containerMetadata(dockerName: string, { labels, annotations }: CriLabels): ContainerMetadata {
  return (
    parseContainerName(dockerName) ?? {
      name: labels[containerNameLabel] ?? dockerName.replace(/^\//, ""),
      attempt: Number.parseInt(annotations[containerRestartCountAnnotation] ?? "", 10) || 0,
    }
  );
}

/** Returns the signal that stops a container. The Engine reports its name or number, or nothing for SIGTERM. CRI's default value
 *  stands for a signal that CRI does not define. */
function stopSignal({ StopSignal }: ContainerInspectInfo["Config"] & { readonly StopSignal?: string }): Signal {
  const text = StopSignal || "SIGTERM";
  const numbered = Object.entries(constants.signals).find(([, number]) => String(number) === text)?.[0];
  const name = (numbered ?? text).toUpperCase();
  return signalNamed(name.startsWith("SIG") ? name : `SIG${name}`);
}

function criMount({ Source, Destination, RW, Propagation }: ContainerInspectInfo["Mounts"][number]): Mount {
  return Mount.fromPartial({
    hostPath: Source,
    containerPath: Destination,
    readonly: !RW,
    propagation: propagationOf(Propagation),
  });
}

function propagationOf(docker: string): MountPropagation {
  switch (docker) {
    case "rslave":
    case "slave":
      return MountPropagation.PROPAGATION_HOST_TO_CONTAINER;
    case "rshared":
    case "shared":
      return MountPropagation.PROPAGATION_BIDIRECTIONAL;
    default:
      return MountPropagation.PROPAGATION_PRIVATE;
  }
}

function criResources(config: HostConfig): ContainerResources {
  const amount = (value: number | undefined): bigint => BigInt(value ?? 0);
  return ContainerResources.fromPartial({
    linux: {
      cpuPeriod: amount(config.CpuPeriod),
      cpuQuota: amount(config.CpuQuota),
      cpuShares: amount(config.CpuShares),
      memoryLimitInBytes: amount(config.Memory),
      memorySwapLimitInBytes: amount(config.MemorySwap),
      oomScoreAdj: amount(config.OomScoreAdj),
      cpusetCpus: config.CpusetCpus ?? "",
      cpusetMems: config.CpusetMems ?? "",
    },
  });
}
