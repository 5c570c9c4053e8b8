import type { ClientHttp2Session } from "node:http2";
import {
  type Claim,
  DRAPluginService,
  NodePrepareResourcesRequest,
  type NodePrepareResourcesResponse,
  NodeUnprepareResourcesRequest,
  type NodeUnprepareResourcesResponse,
} from "../gen/dra.ts";
import { type DeviceHealth, DRAResourceHealthService, NodeWatchResourcesRequest } from "../gen/dra-health.ts";
import { type GrpcDeps, recordedCallToSocket } from "../host/grpc-session.ts";
import { pluginLimits } from "../lib/bounded-decode.ts";
import { type GrpcMethod, serverStreamingCall } from "../lib/grpc.ts";

/** The kubelet plugin of a DRA driver. Every call throws a CodedError with the failure in Go's format, or the signal's reason. */
export type DraDriverClient = ReturnType<typeof createDraDriverClient>;

/** Durations of operations on pods' claims and of calls of drivers, and the number of claims, for metrics. */
export interface DraMeasures {
  /** The claims of a pod were prepared or released. */
  operation(name: "PrepareResources" | "UnprepareResources", failed: boolean, ms: number): void;
  /** @param method `/package.Service/Method`. @param code gRPC's code, as Go names it. */
  called(driver: string, method: string, code: string, ms: number): void;
  /** @param read returns the drivers of each claim in use; called at each scrape. */
  claimsInUse(read: () => readonly (readonly string[])[]): void;
}

export interface DraDriverClientDeps extends GrpcDeps {
  readonly measures: Pick<DraMeasures, "called">;
}

/** Services by which a plugin prepares claims, the newest first. Their messages have the same form. */
export const prepareServices = ["v1.DRAPlugin", "v1beta1.DRAPlugin"] as const;
export type PrepareService = (typeof prepareServices)[number];

/** Timeout of a call, milliseconds: the kubelet's. */
const callTimeoutMs = 45_000;
const userAgent = "graftlet-dra-manager";

/** A plugin to call. */
export interface DriverEndpoint {
  readonly driver: string;
  /** Path of the plugin's socket on the target. */
  readonly endpoint: string;
  readonly service: PrepareService;
  /** Current connection to the plugin; if undefined, each call opens its own. */
  session(): ClientHttp2Session | undefined;
}

/** Creates the client of a plugin. */
export function createDraDriverClient(
  { measures, ...deps }: DraDriverClientDeps,
  { driver, endpoint, service, session }: DriverEndpoint,
) {
  const call = <Request, Response>(method: GrpcMethod<Request, Response>, request: Request, signal: AbortSignal) => {
    const versioned = { ...method, path: method.path.replace(".v1.DRAPlugin/", `.${service}/`) };
    return recordedCallToSocket(
      deps,
      {
        path: endpoint,
        session: session(),
        method: versioned,
        request,
        userAgent,
        limitMs: callTimeoutMs,
        limits: pluginLimits,
      },
      (code, ms) => measures.called(driver, versioned.path, code, ms),
      signal,
    );
  };
  return {
    prepare: (claims: readonly Claim[], signal: AbortSignal): Promise<NodePrepareResourcesResponse> =>
      call(
        DRAPluginService.nodePrepareResources,
        NodePrepareResourcesRequest.fromPartial({ claims: [...claims] }),
        signal,
      ),
    unprepare: (claims: readonly Claim[], signal: AbortSignal): Promise<NodeUnprepareResourcesResponse> =>
      call(
        DRAPluginService.nodeUnprepareResources,
        NodeUnprepareResourcesRequest.fromPartial({ claims: [...claims] }),
        signal,
      ),
  };
}

/** Yields the health of a driver's devices after each change: always all of them. Ends when the driver ends the stream.
 *  @throws as `serverStreamingCall` does; unimplemented for a driver that does not report health. */
export async function* watchDeviceHealth(
  session: ClientHttp2Session,
  { budget }: Pick<GrpcDeps["host"], "budget">,
  signal: AbortSignal,
): AsyncGenerator<readonly DeviceHealth[]> {
  const method = DRAResourceHealthService.nodeWatchResources;
  const options = { userAgent, signal, budget };
  for await (const { devices } of serverStreamingCall(session, method, NodeWatchResourcesRequest.create(), options))
    yield devices;
}
