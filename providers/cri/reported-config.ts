import { parseBoundedJson } from "../../src/lib/bounded-text.ts";
import {
  CgroupDriver,
  RuntimeConfigRequest,
  RuntimeConfigResponse,
  RuntimeServiceService as runtimeService,
  VersionRequest,
} from "../../src/gen/cri.ts";
import { hasCode } from "../../src/lib/errors.ts";
import type { RuntimeConfig, RuntimeFeature } from "../../src/seams/runtime.ts";
import type { GrpcChannel } from "./client.ts";

/** The part of containerd's configuration, from its verbose status, that is used here.
 *  @see https://github.com/containerd/containerd/blob/v1.6.20/pkg/cri/config/config.go */
interface ReportedConfig {
  readonly sandboxImage?: unknown;
  /** Absent in versions where CDI cannot be disabled, such as containerd 2.4. */
  readonly enableCDI?: unknown;
  /** Absent before containerd 1.7. */
  readonly cdiSpecDirs?: unknown;
  readonly containerd?: {
    readonly defaultRuntimeName?: string;
    readonly runtimes?: Readonly<
      Record<string, { readonly runtimeType?: unknown; readonly options?: { readonly SystemdCgroup?: unknown } | null }>
    >;
  };
}

/** Reads the runtime's configuration from its verbose status; undefined if the status has no configuration in JSON form. */
export async function readReportedConfig(
  runtime: GrpcChannel,
  signal: AbortSignal,
): Promise<ReportedConfig | undefined> {
  const { info } = await runtime.call(runtimeService.status, { verbose: true }, signal);
  try {
    const config: unknown = parseBoundedJson(Buffer.from(info["config"] ?? ""));
    return typeof config === "object" && config !== null ? config : undefined;
  } catch {
    return undefined;
  }
}

/** Why a pod feature is unsupported; undefined if it is supported. User namespaces need a runtime handler that supports them;
 *  whether the pod's own handler does is checked when its sandbox is created. Without CDI containerd would start containers
 *  without their devices; runtimes that report no configuration of containerd's form, such as CRI-O, support CDI. */
export async function unsupportedReason(
  runtime: GrpcChannel,
  feature: RuntimeFeature,
  signal: AbortSignal,
): Promise<string | undefined> {
  if (feature === "userNamespace") return lacksUserNamespaces(runtime, signal);
  if (feature === "imageSubPath") return lacksImageSubPaths(runtime, signal);
  if (feature !== "cdiDevices") return undefined;
  const config = await readReportedConfig(runtime, signal);
  const { containerd, cdiSpecDirs, enableCDI = true } = config ?? {};
  if (containerd === undefined || (cdiSpecDirs !== undefined && enableCDI === true)) return undefined;
  return "containerd injects no CDI devices: use containerd 2.0 or newer, or containerd 1.7 with enable_cdi";
}

async function lacksUserNamespaces(runtime: GrpcChannel, signal: AbortSignal): Promise<string | undefined> {
  const { runtimeHandlers } = await runtime.call(runtimeService.status, { verbose: false }, signal);
  if (runtimeHandlers.some(({ features }) => features?.userNamespaces)) return undefined;
  return "no handler of the container runtime supports user namespaces: use containerd 2.0 or newer, or CRI-O, with runc 1.2 or newer, or crun";
}

/** Why subPaths of image volumes are unsupported: containerd 2.1 mounts the whole image instead, without an error. */
async function lacksImageSubPaths(runtime: GrpcChannel, signal: AbortSignal): Promise<string | undefined> {
  const { runtimeName, runtimeVersion } = await runtime.call(
    runtimeService.version,
    VersionRequest.fromPartial({}),
    signal,
  );
  if (runtimeName !== "containerd" || !/^v?2\.1\./.test(runtimeVersion)) return undefined;
  return `containerd ${runtimeVersion} mounts the whole image instead of its subPath: use containerd 2.2 or newer`;
}

/** The shim whose options include the cgroup driver: runc's, and those of its drop-in replacements. */
const runcShim = "io.containerd.runc.v2";

/** Reads the runtime's configuration over CRI, or, for older versions of containerd, the cgroup driver from the verbose status.
 *  @throws unimplemented if the runtime reports neither. */
export async function runtimeConfig(runtime: GrpcChannel, signal: AbortSignal): Promise<RuntimeConfig> {
  try {
    return await runtime.call(runtimeService.runtimeConfig, RuntimeConfigRequest.fromPartial({}), signal);
  } catch (error) {
    if (!hasCode(error, "unimplemented")) throw error;
    const { defaultRuntimeName = "", runtimes } = (await readReportedConfig(runtime, signal))?.containerd ?? {};
    const handler = runtimes?.[defaultRuntimeName];
    if (handler?.runtimeType !== runcShim) throw error;
    const cgroupDriver = handler.options?.SystemdCgroup === true ? CgroupDriver.SYSTEMD : CgroupDriver.CGROUPFS;
    return { ...RuntimeConfigResponse.fromPartial({ linux: { cgroupDriver } }), isInferred: true };
  }
}
