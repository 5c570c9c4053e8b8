import { rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Server, status } from "@grpc/grpc-js";
import {
  type CapacityRange,
  NodeExpandVolumeResponse,
  NodeGetCapabilitiesResponse,
  NodeGetInfoResponse,
  NodeGetVolumeStatsResponse,
  NodePublishVolumeResponse,
  NodeServiceCapability_RPC_Type as Capability,
  NodeService,
  NodeStageVolumeResponse,
  NodeUnpublishVolumeResponse,
  NodeUnstageVolumeResponse,
  type VolumeCapability,
  type VolumeUsage,
} from "../../src/gen/csi.ts";
import {
  PluginInfo,
  type RegistrationStatus,
  RegistrationService,
  RegistrationStatusResponse,
} from "../../src/gen/plugin-registration.ts";
import { type CallMoment, Lost, Pending, type Stop, createStops } from "./csi-stops.ts";
import { serveAt } from "./plugin-socket.ts";

export interface TestDriverOptions {
  readonly name: string;
  /** The node's root directory. */
  readonly rootDir: string;
  /** Where the content of volumes lies on the machine, a directory for each. */
  readonly disks: string;
  /** Runs a command on the machine. */
  readonly run: (argv: readonly string[]) => Promise<unknown>;
  readonly capabilities?: readonly Capability[];
  readonly info?: Partial<NodeGetInfoResponse>;
  readonly plugin?: Partial<PluginInfo>;
  /** What it tells of the space of volumes. */
  readonly usage?: readonly VolumeUsage[];
  /** The block device that volumes are which are asked for as such. */
  readonly device?: string;
  /** The registration socket below plugins_registry. */
  readonly socket?: string;
}

/** What a driver was asked. */
export interface DriverCall {
  readonly method: string;
  readonly request: Readonly<Record<string, unknown>>;
}

/** A storage driver in the test's own process, whose volumes are directories that it binds. */
export interface TestDriver extends AsyncDisposable {
  readonly calls: readonly DriverCall[];
  /** What the node has said of its registration. */
  readonly told: readonly RegistrationStatus[];
  /** Names of methods that were called, in order, those that only ask left out. */
  methods(): readonly string[];
  /** From now on a method fails so, for one volume or for all; undefined: no longer. */
  fail(method: string, code: status | undefined, details?: string, volumeId?: string): void;
  /** The next calls of a method for these volumes stop at a moment. */
  stopAt(moment: CallMoment, method: string, volumes: readonly string[]): Stop;
  /** From now on a method answers so much later than it has done its work, milliseconds; infinity: never. */
  delay(method: string, ms: number): void;
  /** From now on it tells this of the node. */
  info(info: Partial<NodeGetInfoResponse>): void;
  /** Its sockets go. */
  stop(): void;
}

type Reply = (error: { code: status; details: string } | null, answer?: unknown) => void;
type Handler = (call: { readonly request: Record<string, unknown> }, reply: Reply) => void;

const asking = ["NodeGetCapabilities", "NodeGetInfo", "GetInfo"];

export async function startTestDriver(given: TestDriverOptions): Promise<TestDriver> {
  const { name, rootDir, disks, run } = given;
  const endpoint = join(rootDir, "plugins", name, "csi.sock");
  const registration = join(rootDir, "plugins_registry", given.socket ?? `${name}-reg.sock`);
  const capabilities = given.capabilities ?? [Capability.STAGE_UNSTAGE_VOLUME];
  const calls: DriverCall[] = [];
  const told: RegistrationStatus[] = [];
  let info = given.info ?? {};
  const delays = new Map<string, number>();
  const failures = new Map<string, { code: status; details: string }>();
  const stops = createStops();

  const text = (request: Record<string, unknown>, field: string) => String(request[field]);
  const answer =
    (method: string, make: (request: Record<string, unknown>) => unknown): Handler =>
    ({ request }, reply) => {
      calls.push({ method, request });
      const failure = failures.get(`${method} ${text(request, "volumeId")}`) ?? failures.get(method);
      if (failure) return reply(failure);
      stops
        .around(method, text(request, "volumeId"), () => make(request))
        .then((made) => later(delays.get(method) ?? 0, made))
        .then(
          (made) => reply(null, made),
          (error: unknown) => reply({ code: codeOf(error), details: String(error) }),
        );
    };
  const bind = async (from: string, to: string, readOnly: boolean) => {
    await run(["sh", "-c", `mkdir -p ${from} ${to}; mountpoint -q ${to} || mount --bind ${from} ${to}`]);
    if (readOnly) await run(["mount", "-o", "remount,bind,ro", to]);
  };
  const unbind = (path: string) => run(["sh", "-c", `! mountpoint -q ${path} || umount ${path}`]);

  const isBlock = (request: Record<string, unknown>) =>
    (request.volumeCapability as VolumeCapability | undefined)?.block !== undefined;

  const node = new Server();
  node.addService(NodeService, {
    nodeGetInfo: answer("NodeGetInfo", () => NodeGetInfoResponse.fromPartial({ nodeId: `${name}-node`, ...info })),
    nodeGetCapabilities: answer("NodeGetCapabilities", () =>
      NodeGetCapabilitiesResponse.fromPartial({ capabilities: capabilities.map((type) => ({ rpc: { type } })) }),
    ),
    nodeStageVolume: answer("NodeStageVolume", async (request) => {
      if (isBlock(request)) return NodeStageVolumeResponse.create();
      await bind(join(disks, text(request, "volumeId")), text(request, "stagingTargetPath"), false);
      return NodeStageVolumeResponse.create();
    }),
    nodeUnstageVolume: answer("NodeUnstageVolume", async (request) => {
      await unbind(text(request, "stagingTargetPath"));
      return NodeUnstageVolumeResponse.create();
    }),
    nodePublishVolume: answer("NodePublishVolume", async (request) => {
      if (isBlock(request)) {
        const path = text(request, "targetPath");
        await run(["sh", "-c", `touch ${path}; mountpoint -q ${path} || mount --bind ${given.device} ${path}`]);
        return NodePublishVolumeResponse.create();
      }
      const staged = text(request, "stagingTargetPath");
      const from = staged === "" ? join(disks, text(request, "volumeId")) : staged;
      await bind(from, text(request, "targetPath"), request.readonly === true);
      return NodePublishVolumeResponse.create();
    }),
    nodeUnpublishVolume: answer("NodeUnpublishVolume", async (request) => {
      const path = text(request, "targetPath");
      await unbind(path);
      await run(["sh", "-c", `rmdir ${path} 2>/dev/null || rm -f ${path}`]);
      return NodeUnpublishVolumeResponse.create();
    }),
    nodeGetVolumeStats: answer("NodeGetVolumeStats", () =>
      NodeGetVolumeStatsResponse.fromPartial({ usage: [...(given.usage ?? [])] }),
    ),
    nodeExpandVolume: answer("NodeExpandVolume", async (request) => {
      await run(["mountpoint", "-q", text(request, "volumePath")]);
      const capacityBytes = (request.capacityRange as CapacityRange | undefined)?.requiredBytes ?? 0n;
      return NodeExpandVolumeResponse.fromPartial({ capacityBytes });
    }),
  });
  const registrar = new Server();
  registrar.addService(RegistrationService, {
    getInfo: answer("GetInfo", () =>
      PluginInfo.fromPartial({
        type: "CSIPlugin",
        name,
        endpoint,
        supportedVersions: ["1.0.0"],
        ...given.plugin,
      }),
    ),
    notifyRegistrationStatus: answer("NotifyRegistrationStatus", (request) => {
      told.push(request as unknown as RegistrationStatus);
      return RegistrationStatusResponse.create();
    }),
  });
  await serveAt(node, endpoint);
  await serveAt(registrar, registration);
  const stop = () => {
    registrar.forceShutdown();
    node.forceShutdown();
    for (const path of [registration, endpoint]) rmSync(path, { force: true });
  };
  return {
    calls,
    told,
    methods: () => calls.map(({ method }) => method).filter((method) => !asking.includes(method)),
    fail(method, code, details = `${method} failed`, volumeId) {
      const key = volumeId === undefined ? method : `${method} ${volumeId}`;
      if (code === undefined) failures.delete(key);
      else failures.set(key, { code, details });
    },
    stopAt: stops.stopAt,
    delay: (method, ms) => void delays.set(method, ms),
    info: (now) => void (info = now),
    stop,
    async [Symbol.asyncDispose]() {
      stop();
    },
  };
}

function codeOf(error: unknown): status {
  if (error instanceof Pending) return status.ABORTED;
  return error instanceof Lost ? status.UNAVAILABLE : status.INTERNAL;
}

function later<T>(ms: number, value: T): Promise<T> {
  if (ms === Number.POSITIVE_INFINITY) return new Promise<T>(() => undefined);
  return ms === 0 ? Promise.resolve(value) : sleep(ms, value);
}
