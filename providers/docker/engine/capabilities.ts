import type { RuntimeFeature } from "../../../src/seams/runtime.ts";
import { type EngineInfo, engineInfo } from "../client/engine-info.ts";
import type { DockerParts } from "../parts.ts";
import type { SandboxImage } from "../pause/image.ts";
import { createSharedPromise } from "../../../src/lib/single-flight.ts";
import { throwIfAborted } from "../../../src/lib/errors.ts";
import { type CapabilityProbes, runCapabilityProbes } from "./capability-probes.ts";

/** Capabilities of the daemon, from its info or, if that does not include them, from a probe. */
export type EngineCapabilities = ReturnType<typeof createCapabilities>;

/** OOM score adjustment of sandboxes, as in cri-dockerd: a sandbox is killed last. */
export const sandboxOomScoreAdj = -998;

const probesTimeoutMs = 60_000;

export function createCapabilities(parts: DockerParts, sandboxImage: Pick<SandboxImage, "ensure">) {
  const shared = createSharedPromise<void>(parts.clock, probesTimeoutMs);
  let known: EngineInfo | undefined;
  let probes: CapabilityProbes | undefined;

  const refresh = async (signal: AbortSignal): Promise<EngineInfo> => {
    const info = await engineInfo(parts, signal);
    if (known && (known.ID !== info.ID || known.ServerVersion !== info.ServerVersion)) probes = undefined;
    known = info;
    return info;
  };
  const info = async (signal: AbortSignal) => known ?? refresh(signal);
  const probe = async (image: string, signal: AbortSignal): Promise<void> => {
    if (probes) return;
    await shared(async (until) => {
      probes = await runCapabilityProbes(parts, image, until);
      if (probes) logProbes(parts, probes);
    }, signal);
  };
  const determine = async (feature: RuntimeFeature, signal: AbortSignal): Promise<void> => {
    try {
      if (feature !== "privileged") await info(signal);
      else if (!probes) await probe(await sandboxImage.ensure(signal), signal);
    } catch (error) {
      throwIfAborted(signal);
      parts.log.debug({ err: error, feature }, "cannot determine the Docker Engine's capabilities");
    }
  };
  return {
    /** The daemon's current info. */
    refresh,
    /** The daemon's info, cached until `reset`. */
    info,
    /** True once the probes have run. */
    isProbed: (): boolean => probes !== undefined,
    /** Runs the probes, once per daemon. @param image the sandbox image, already present. */
    probe,
    /** OOM score adjustment of sandboxes: the same as with other runtimes, or 0 if this daemon cannot lower it. */
    sandboxOomScoreAdj: (): number => (probes?.lowOomScore === "works" ? sandboxOomScoreAdj : 0),
    /** Reason why pods cannot use a feature, a sentence with the remedy; undefined if they can. Unknown capabilities are
     *  determined first; a probe needs the sandbox image. Also undefined if they cannot be determined: sandboxes then fail to
     *  start, and report why. */
    async unsupportedReason(feature: RuntimeFeature, signal: AbortSignal): Promise<string | undefined> {
      await determine(feature, signal);
      return unsupportedReason(feature, known, probes);
    },
    /** Drops cached state, because the daemon was unavailable and may have been replaced. */
    reset: (): void => {
      known = undefined;
      probes = undefined;
    },
  };
}

function logProbes({ log }: DockerParts, { privileged, lowOomScore }: CapabilityProbes): void {
  if (typeof privileged !== "string")
    log.info({ why: privileged.fails }, "Docker cannot start privileged containers on this target");
  if (typeof lowOomScore !== "string")
    log.info({ why: lowOomScore.fails }, "Docker cannot lower OOM scores on this target; sandboxes keep the default");
}

function unsupportedReason(
  feature: RuntimeFeature,
  info: EngineInfo | undefined,
  probes: CapabilityProbes | undefined,
): string | undefined {
  const refused = probes?.privileged;
  switch (feature) {
    case "privileged":
      if (refused === undefined || typeof refused === "string") return undefined;
      return `this machine's Docker Engine cannot start privileged containers (${refused.fails}): let its daemon run as root with all capabilities.`;
    case "seccomp":
      return info && !hasSecurity(info, "seccomp")
        ? "this machine's Docker Engine does not support seccomp (docker info lists no such security option): use a kernel with CONFIG_SECCOMP_FILTER and a daemon built with it."
        : undefined;
    case "appArmor":
      return info && !hasSecurity(info, "apparmor")
        ? "this machine's Docker Engine does not support AppArmor (docker info lists no such security option): enable it in the kernel (apparmor=1 security=apparmor) and restart Docker."
        : undefined;
    case "memoryLimit":
      return info && !info.MemoryLimit
        ? "this machine's Docker Engine cannot limit memory: enable the memory cgroup controller (cgroup_enable=memory on the kernel's command line, or delegation to a rootless daemon) and restart Docker."
        : undefined;
    case "cpuLimit":
      return info && !info.CpuCfsQuota
        ? "this machine's Docker Engine cannot limit CPU time: use a kernel with CONFIG_CFS_BANDWIDTH, or delegate the cpu cgroup controller to a rootless daemon, and restart Docker."
        : undefined;
    case "swapLimit":
      return "a Docker Engine limits a container's swap only together with its memory: set a memory limit.";
    case "imageVolume":
    case "imageSubPath":
      return "image volumes are not supported with the Docker Engine: use containerd 2.2 or later, or CRI-O, on this machine.";
    case "userNamespace":
      return "a Docker Engine has one user namespace for all containers: use containerd 2.0 or later, or CRI-O, on this machine.";
    case "cdiDevices":
      return info && noCdiDevices(info);
  }
}

/** Reason why the daemon injects no CDI devices; undefined if it does. Docker 28.2 and newer do unless `features.cdi` is false, Docker 25 to
 *  28.1 if it is true. A daemon that does not lists no directories of CDI specs.
 *  @see https://docs.docker.com/reference/cli/dockerd/#configure-cdi-devices */
function noCdiDevices({ CDISpecDirs, ServerVersion }: EngineInfo): string | undefined {
  if (!Array.isArray(CDISpecDirs))
    return `this machine's Docker Engine ${ServerVersion} cannot inject CDI devices: upgrade it to version 28.2 or newer.`;
  if (CDISpecDirs.length > 0) return undefined;
  return `CDI is disabled in this machine's Docker Engine ${ServerVersion} (docker info lists no CDI spec directories): set "features": {"cdi": true} in its daemon.json, and restart Docker.`;
}

/** @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/System/operation/SystemInfo (SecurityOptions) */
function hasSecurity({ SecurityOptions }: EngineInfo, name: string): boolean {
  return (SecurityOptions ?? []).some((option) => option.split(",").includes(`name=${name}`));
}
