import type { RegisteringPlugin } from "../plugins/ports.ts";
import {
  NodeGetCapabilitiesRequest,
  NodeGetInfoRequest,
  type NodeGetInfoResponse,
  type NodeServiceCapability_RPC_Type,
  NodeService,
} from "../gen/csi.ts";
import { type GrpcDeps, recordedCallToSocket } from "../host/grpc-session.ts";
import { smallLimits } from "../lib/bounded-decode.ts";
import type { GrpcMethod } from "../lib/grpc.ts";
import type { CsiNodeService } from "../pipeline.ts";

/** Calls to CSI drivers. */
export interface DriverMeasures {
  /** A CSI driver was called. @param method gRPC path. @param code Go's name of the status. */
  called(driver: string, method: string, code: string, ms: number): void;
}

/** Timeout of a call, milliseconds: the kubelet's. */
const callTimeoutMs = 120_000;
const clientOptions = { userAgent: "graftlet-csi", limitMs: callTimeoutMs, limits: smallLimits };

/** A driver's node service, including the calls that only registration makes. */
export interface CsiDriverClient extends CsiNodeService {
  info(signal: AbortSignal): Promise<NodeGetInfoResponse>;
}

export interface CsiDriverClientDeps extends GrpcDeps {
  readonly measures: DriverMeasures;
}

/** Calls the node service on a socket of the target, each call over its own connection: another driver may have taken over the
 *  socket. */
export function createCsiDriverClient(
  { measures, ...deps }: CsiDriverClientDeps,
  { name, endpoint }: Pick<RegisteringPlugin, "name" | "endpoint">,
): CsiDriverClient {
  const whole = new AbortController().signal;
  const call = <Request, Response>(method: GrpcMethod<Request, Response>, request: Request, signal = whole) =>
    recordedCallToSocket(
      deps,
      { ...clientOptions, path: endpoint, method, request },
      (code, ms) => measures.called(name, method.path, code, ms),
      signal,
    );
  const done = async (answer: Promise<unknown>) => void (await answer);
  return {
    info: (signal) => call(NodeService.nodeGetInfo, NodeGetInfoRequest.create(), signal),
    async capabilities() {
      const answer = await call(NodeService.nodeGetCapabilities, NodeGetCapabilitiesRequest.create());
      return new Set<NodeServiceCapability_RPC_Type>(answer.capabilities.flatMap(({ rpc }) => (rpc ? [rpc.type] : [])));
    },
    stage: (request) => done(call(NodeService.nodeStageVolume, request)),
    unstage: (request) => done(call(NodeService.nodeUnstageVolume, request)),
    publish: (request) => done(call(NodeService.nodePublishVolume, request)),
    unpublish: (request) => done(call(NodeService.nodeUnpublishVolume, request)),
    expand: (request) => done(call(NodeService.nodeExpandVolume, request)),
    stats: (request) => call(NodeService.nodeGetVolumeStats, request),
  };
}
