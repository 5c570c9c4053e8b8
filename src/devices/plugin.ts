import type { ClientHttp2Session } from "node:http2";
import {
  type ContainerAllocateResponse,
  type Device,
  type DevicePluginOptions,
  AllocateRequest,
  DevicePluginService,
  Empty,
  PreferredAllocationRequest,
  PreStartContainerRequest,
} from "../gen/device-plugin.ts";
import { openGrpcWithRetry } from "../host/grpc-session.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, codeOf, messageOf, throwIfAborted } from "../lib/errors.ts";
import { type GrpcMethod, serverStreamingCall, unaryCall } from "../lib/grpc.ts";
import type { Host } from "../seams/host.ts";

/** A connected device plugin on the target. Every call throws CodedError, whose message is the failure in Go's format.
 *  @see https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/ */
export interface DevicePlugin {
  readonly options: DevicePluginOptions;
  /** Yields the list of all devices after each change; ends or throws when the plugin is gone. */
  devices(signal: AbortSignal): AsyncIterable<readonly Device[]>;
  allocate(ids: readonly string[], signal: AbortSignal): Promise<ContainerAllocateResponse>;
  /** GetPreferredAllocation call. */
  preferredAllocation(
    choice: { readonly available: readonly string[]; readonly mustInclude: readonly string[]; readonly size: number },
    signal: AbortSignal,
  ): Promise<readonly string[]>;
  /** PreStartContainer call, before each start of the container. */
  preStart(ids: readonly string[], signal: AbortSignal): Promise<void>;
  close(): void;
}

export interface PluginDeps {
  readonly host: Pick<Host, "dial" | "budget">;
  /** Timeout of plugin calls, milliseconds. */
  readonly requestTimeoutMs: number;
  readonly clock: Clock;
}

const userAgent = "graftlet-device-manager";
/** Timeout for a registering plugin to listen, milliseconds. */
const connectTimeoutMs = 10_000;
const preStartTimeoutMs = 30_000;

/** Connects to a plugin and reads its options. @param path its socket on the target. @throws CodedError in the kubelet's words. */
export async function connectPlugin(deps: PluginDeps, path: string, signal: AbortSignal): Promise<DevicePlugin> {
  const session = await openSession(deps, path, signal);
  try {
    const options = await unaryCall(session, DevicePluginService.getDevicePluginOptions, Empty.create(), {
      userAgent,
      signal: deps.clock.within(deps.requestTimeoutMs, signal),
      budget: deps.host.budget,
    });
    return pluginOn(deps, session, options);
  } catch (error) {
    session.destroy();
    throwIfAborted(signal);
    throw new CodedError(codeOf(error), `failed to get device plugin options: ${messageOf(error)}`, { cause: error });
  }
}

function pluginOn(
  { host: { budget }, requestTimeoutMs, clock }: PluginDeps,
  session: ClientHttp2Session,
  options: DevicePluginOptions,
): DevicePlugin {
  const call = <Request, Response>(
    method: GrpcMethod<Request, Response>,
    request: Request,
    signal: AbortSignal,
    ms = requestTimeoutMs,
  ) => unaryCall(session, method, request, { userAgent, signal: clock.within(ms, signal), budget });
  return {
    options,
    async *devices(signal) {
      const answers = serverStreamingCall(session, DevicePluginService.listAndWatch, Empty.create(), {
        userAgent,
        signal,
        budget,
      });
      for await (const { devices } of answers) yield devices;
    },
    async allocate(ids, signal) {
      const request = AllocateRequest.fromPartial({ containerRequests: [{ devicesIds: [...ids] }] });
      const { containerResponses } = await call(DevicePluginService.allocate, request, signal);
      const [response] = containerResponses;
      if (!response) throw new CodedError("unknown", "no containers return in allocation response");
      return response;
    },
    async preferredAllocation({ available, mustInclude, size }, signal) {
      const request = PreferredAllocationRequest.fromPartial({
        containerRequests: [
          {
            availableDeviceIDs: [...available],
            mustIncludeDeviceIDs: [...mustInclude],
            allocationSize: size,
          },
        ],
      });
      const { containerResponses } = await call(DevicePluginService.getPreferredAllocation, request, signal);
      return containerResponses[0]?.deviceIDs ?? [];
    },
    async preStart(ids, signal) {
      const request = PreStartContainerRequest.fromPartial({ devicesIds: [...ids] });
      await call(DevicePluginService.preStartContainer, request, signal, preStartTimeoutMs);
    },
    close: () => session.destroy(),
  };
}

async function openSession(deps: PluginDeps, path: string, signal: AbortSignal): Promise<ClientHttp2Session> {
  const deadline = deps.clock.within(connectTimeoutMs, signal);
  try {
    return await openGrpcWithRetry(deps, path, deadline);
  } catch (error) {
    throwIfAborted(signal);
    const why = deadline.aborted ? "context deadline exceeded" : messageOf(error);
    throw new CodedError("unavailable", `failed to dial device plugin: ${why}`, { cause: error });
  }
}
