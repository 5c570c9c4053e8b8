import {
  CgroupDriver,
  RuntimeConfigResponse,
  RuntimeHandler,
  StatusResponse,
  VersionResponse,
} from "../../../src/gen/cri.ts";
import { CodedError, hasCode } from "../../../src/lib/errors.ts";
import type { Runtime } from "../../../src/seams/runtime.ts";
import type { Capabilities } from "./capabilities.ts";
import type { EngineInfo } from "../client/engine-info.ts";
import { inspectImage } from "../image/inspect.ts";
import type { PodNetwork } from "../network/pod-network.ts";
import type { DockerParts } from "../parts.ts";
import { localPauseImage } from "../config.ts";

export type Service = Pick<Runtime, "version" | "status" | "runtimeConfig" | "updateRuntimeConfig" | "lastAliveAt">;

/** Timeout of a health check, milliseconds, shorter than an ordinary call's. */
const healthMs = 10_000;

export interface ServiceDeps {
  readonly parts: DockerParts;
  readonly network: PodNetwork;
  readonly capabilities: Capabilities;
}

/** The daemon's status. A daemon that does not respond, refuses access or is too old is an error, one sentence with the remedy. */
export function dockerService(deps: ServiceDeps): Service {
  const { parts, network, capabilities } = deps;
  const { docker, cache } = parts;
  /** State token of the last status call. */
  let saidAt: number | undefined;
  const asked = <T>(work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal) => health(deps, work, signal);
  return {
    version: (signal) => asked((until) => version(parts, until), signal),
    status: (signal) =>
      asked(async (until) => {
        const mark = cache.mark();
        const info = await capabilities.refresh(until);
        if (!capabilities.triedOut()) await tryOut(deps, until);
        // The last pod got no network: one may be available now.
        if (network.problem() !== undefined) await network.ensure(until).catch(() => undefined);
        saidAt = mark;
        return statusOf(info, network.problem());
      }, signal),
    lastAliveAt() {
      const holds = saidAt !== undefined && saidAt === cache.mark();
      return holds && capabilities.triedOut() && network.problem() === undefined ? docker.answeredAt() : undefined;
    },
    async runtimeConfig(signal) {
      const { CgroupDriver: driver } = await asked(capabilities.info, signal);
      return RuntimeConfigResponse.fromPartial(driver === "none" ? {} : { linux: { cgroupDriver: driverOf(driver) } });
    },
    async updateRuntimeConfig({ runtimeConfig }, signal) {
      const podCidrs = runtimeConfig?.networkConfig?.podCidr;
      if (podCidrs) await network.assign(podCidrs, signal);
    },
  };
}

/** @throws CodedError with a message of our own: a frozen daemon sends none. */
async function health<T>(
  { parts: { clock, config }, capabilities }: ServiceDeps,
  work: (signal: AbortSignal) => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  try {
    return await work(clock.within(healthMs, signal));
  } catch (error) {
    // An unavailable daemon may come back as another one; a slow one is the same, and needs no new probes.
    if (!hasCode(error, "deadline_exceeded")) capabilities.forget();
    if (signal.aborted || !hasCode(error, "deadline_exceeded")) throw error;
    throw new CodedError(
      "deadline_exceeded",
      `the Docker Engine at ${config.socket} has not answered within ${healthMs / 1000} s: check its log (journalctl -u docker), or restart it.`,
      { cause: error },
    );
  }
}

async function version({ docker }: DockerParts, signal: AbortSignal): Promise<VersionResponse> {
  const { Version } = await docker.ask<{ readonly Version: string }>({ path: "/version" }, signal);
  return VersionResponse.fromPartial({
    version: "0.1.0",
    runtimeName: "docker",
    runtimeVersion: Version,
    runtimeApiVersion: "v1",
  });
}

/** Runs the probes if a sandbox image is present; otherwise the first sandbox does. Slow probes do not make the daemon unready: they
 *  continue in the background. */
async function tryOut({ parts, capabilities }: ServiceDeps, signal: AbortSignal): Promise<void> {
  for (const image of [parts.config.sandboxImage, localPauseImage]) {
    if (!(await inspectImage(parts, image, signal))) continue;
    try {
      return await capabilities.tryOut(image, signal);
    } catch (error) {
      if (signal.aborted) return;
      throw error;
    }
  }
}

/** Runtime conditions with cri-dockerd's reasons. */
function statusOf({ Runtimes }: EngineInfo, networkProblem: string | undefined): StatusResponse {
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

function driverOf(driver: string): CgroupDriver {
  return driver === "systemd" ? CgroupDriver.SYSTEMD : CgroupDriver.CGROUPFS;
}
