import {
  CgroupDriver,
  RuntimeConfigResponse,
  RuntimeHandler,
  StatusResponse,
  VersionResponse,
} from "../../../src/gen/cri.ts";
import { CodedError, hasCode } from "../../../src/lib/errors.ts";
import type { Runtime } from "../../../src/seams/runtime.ts";
import type { EngineCapabilities } from "./capabilities.ts";
import type { EngineInfo } from "../client/engine-info.ts";
import { inspectImage } from "../image/inspect.ts";
import type { PodNetwork } from "../network/pod-network.ts";
import type { DockerParts } from "../parts.ts";
import { localPauseImage } from "../config.ts";

export type EngineService = Pick<
  Runtime,
  "version" | "status" | "runtimeConfig" | "updateRuntimeConfig" | "lastAliveAt"
>;

/** Timeout of a health check, milliseconds, shorter than an ordinary call's. */
const healthTimeoutMs = 10_000;

export interface EngineServiceDeps {
  readonly parts: DockerParts;
  readonly network: PodNetwork;
  readonly capabilities: EngineCapabilities;
}

/** Reports the daemon's version, status and configuration. If the daemon does not respond, refuses access or is too old, the
 *  calls fail with a sentence that names the remedy. */
export function dockerEngineService(deps: EngineServiceDeps): EngineService {
  const { parts, network, capabilities } = deps;
  const { docker, cache } = parts;
  /** State token of the response cache at the last status call. */
  let statusVersion: number | undefined;
  const withHealthTimeout = <T>(work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal) =>
    callWithHealthTimeout(deps, work, signal);
  return {
    version: (signal) => withHealthTimeout((until) => version(parts, until), signal),
    status: (signal) =>
      withHealthTimeout(async (until) => {
        const mark = cache.version();
        const info = await capabilities.refresh(until);
        if (!capabilities.isProbed()) await probeCapabilities(deps, until);
        // The last attempt to get the network failed, so try again.
        if (network.problem() !== undefined) await network.ensure(until).catch(() => undefined);
        statusVersion = mark;
        return runtimeStatus(info, network.problem());
      }, signal),
    lastAliveAt() {
      const holds = statusVersion !== undefined && statusVersion === cache.version();
      return holds && capabilities.isProbed() && network.problem() === undefined ? docker.lastResponseAt() : undefined;
    },
    async runtimeConfig(signal) {
      const { CgroupDriver: driver } = await withHealthTimeout(capabilities.info, signal);
      return RuntimeConfigResponse.fromPartial(
        driver === "none" ? {} : { linux: { cgroupDriver: criCgroupDriver(driver) } },
      );
    },
    async updateRuntimeConfig({ runtimeConfig }, signal) {
      const podCidrs = runtimeConfig?.networkConfig?.podCidr;
      if (podCidrs) await network.setSubnet(podCidrs, signal);
    },
  };
}

/** Limits the time of a health check. @throws CodedError deadline_exceeded with a message of our own, as a frozen daemon sends
 *  none. */
async function callWithHealthTimeout<T>(
  { parts: { clock, config }, capabilities }: EngineServiceDeps,
  work: (signal: AbortSignal) => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  try {
    return await work(clock.within(healthTimeoutMs, signal));
  } catch (error) {
    // An unavailable daemon may come back as a different one; after a mere timeout it is the same, and needs no new probes.
    if (!hasCode(error, "deadline_exceeded")) capabilities.reset();
    if (signal.aborted || !hasCode(error, "deadline_exceeded")) throw error;
    throw new CodedError(
      "deadline_exceeded",
      `the Docker Engine at ${config.socket} has not answered within ${healthTimeoutMs / 1000} s: check its log (journalctl -u docker), or restart it.`,
      { cause: error },
    );
  }
}

async function version({ docker }: DockerParts, signal: AbortSignal): Promise<VersionResponse> {
  const { Version } = await docker.request<{ readonly Version: string }>({ path: "/version" }, signal);
  return VersionResponse.fromPartial({
    version: "0.1.0",
    runtimeName: "docker",
    runtimeVersion: Version,
    runtimeApiVersion: "v1",
  });
}

/** Runs the probes if a sandbox image is present; otherwise they run when the first sandbox is created. Slow probes do not make
 *  the daemon unready: they continue in the background. */
async function probeCapabilities({ parts, capabilities }: EngineServiceDeps, signal: AbortSignal): Promise<void> {
  for (const image of [parts.config.sandboxImage, localPauseImage]) {
    if (!(await inspectImage(parts, image, signal))) continue;
    try {
      return await capabilities.probe(image, signal);
    } catch (error) {
      if (signal.aborted) return;
      throw error;
    }
  }
}

/** Runtime conditions with cri-dockerd's reasons. */
function runtimeStatus({ Runtimes }: EngineInfo, networkProblem: string | undefined): StatusResponse {
  const names = ["", ...Object.keys(Runtimes ?? {})];
  return StatusResponse.fromPartial({
    status: {
      conditions: [
        { type: "RuntimeReady", status: true },
        {
          type: "NetworkReady",
          status: networkProblem === undefined,
          ...(networkProblem !== undefined && { reason: "NetworkPluginNotReady", message: networkProblem }),
        },
      ],
    },
    runtimeHandlers: names.map((name) => RuntimeHandler.fromPartial({ name, features: {} })),
    features: { supplementalGroupsPolicy: false },
  });
}

function criCgroupDriver(driver: string): CgroupDriver {
  return driver === "systemd" ? CgroupDriver.SYSTEMD : CgroupDriver.CGROUPFS;
}
