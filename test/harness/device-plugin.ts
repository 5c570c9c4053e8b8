import { join } from "node:path";
import { Client, Server, type ServerWritableStream, credentials, status } from "@grpc/grpc-js";
import {
  AllocateResponse,
  type ContainerAllocateResponse,
  type Device,
  DevicePluginOptions,
  DevicePluginService,
  type Empty,
  ListAndWatchResponse,
  type ListAndWatchResponse as Listing,
  PreferredAllocationResponse,
  type PreferredAllocationRequest,
  PreStartContainerResponse,
  RegisterRequest,
  RegistrationService,
} from "../../src/gen/device-plugin.ts";
import { serveAt } from "./plugin-socket.ts";

export interface TestPluginOptions {
  /** The directory of kubelet.sock. */
  readonly directory: string;
  readonly resource: string;
  /** Healthy ones. */
  readonly devices: readonly string[];
  /** Name of the plugin's own socket. */
  readonly socket?: string;
  readonly options?: Partial<DevicePluginOptions>;
  /** What a container gets with its devices. */
  readonly answer?: (ids: readonly string[]) => Partial<ContainerAllocateResponse>;
  readonly prefer?: (ids: readonly string[]) => readonly string[];
}

/** A device plugin in the test's own process, which says what it was asked. */
export interface TestPlugin extends AsyncDisposable {
  /** Names of methods, and the IDs with which devices were asked for. */
  readonly calls: readonly string[];
  readonly preferences: readonly PreferredAllocationRequest[];
  /** Says that these devices are there; with another health than `Healthy` after a colon. */
  show(devices: readonly string[]): void;
  /** From now on a method fails with that message. */
  break(method: string, message: string): void;
  register(request?: Partial<RegisterRequest>): Promise<void>;
  /** Goes without a word. */
  die(): void;
}

export async function startTestPlugin(given: TestPluginOptions): Promise<TestPlugin> {
  const { directory, resource, socket = "test.sock" } = given;
  const calls: string[] = [];
  const preferences: PreferredAllocationRequest[] = [];
  const broken = new Map<string, string>();
  const listeners = new Set<ServerWritableStream<Empty, Listing>>();
  let devices = given.devices;
  type Reply<Answer> = (error: { code: status; details: string } | null, answer?: Answer) => void;
  const answer = <Answer>(call: string, reply: Reply<Answer>, make: () => Answer) => {
    calls.push(call);
    const details = broken.get(call.split(" ", 1)[0] ?? "");
    if (details === undefined) reply(null, make());
    else reply({ code: status.UNKNOWN, details });
  };
  const server = new Server();
  server.addService(DevicePluginService, {
    getDevicePluginOptions: (_call: unknown, reply: Reply<DevicePluginOptions>) =>
      answer("GetDevicePluginOptions", reply, () => DevicePluginOptions.fromPartial(given.options ?? {})),
    listAndWatch: (stream: ServerWritableStream<Empty, Listing>) => {
      calls.push("ListAndWatch");
      const details = broken.get("ListAndWatch");
      if (details !== undefined) return void stream.emit("error", { code: status.UNKNOWN, details });
      listeners.add(stream);
      stream.on("cancelled", () => listeners.delete(stream));
      stream.write(listing(devices));
    },
    allocate: (
      { request }: { request: { containerRequests: { devicesIds: string[] }[] } },
      reply: Reply<AllocateResponse>,
    ) => {
      const ids = request.containerRequests[0]?.devicesIds ?? [];
      answer(`Allocate ${ids.join(",")}`, reply, () =>
        AllocateResponse.fromPartial({ containerResponses: [given.answer?.(ids) ?? {}] }),
      );
    },
    getPreferredAllocation: (
      { request }: { request: PreferredAllocationRequest },
      reply: Reply<PreferredAllocationResponse>,
    ) => {
      preferences.push(request);
      const available = request.containerRequests[0]?.availableDeviceIDs ?? [];
      answer("GetPreferredAllocation", reply, () =>
        PreferredAllocationResponse.fromPartial({
          containerResponses: [{ deviceIDs: [...(given.prefer?.(available) ?? [])] }],
        }),
      );
    },
    preStartContainer: ({ request }: { request: { devicesIds: string[] } }, reply: Reply<PreStartContainerResponse>) =>
      answer(`PreStartContainer ${request.devicesIds.join(",")}`, reply, () => PreStartContainerResponse.create()),
  });
  await serveAt(server, join(directory, socket));
  return {
    calls,
    preferences,
    show(next) {
      devices = next;
      for (const stream of listeners) stream.write(listing(devices));
    },
    break(method, message) {
      broken.set(method, message);
      if (method !== "ListAndWatch") return;
      for (const stream of listeners) stream.emit("error", { code: status.UNKNOWN, details: message });
    },
    register: (request = {}) =>
      registerAt(
        join(directory, "kubelet.sock"),
        RegisterRequest.fromPartial({ version: "v1beta1", endpoint: socket, resourceName: resource, ...request }),
      ),
    die: () => server.forceShutdown(),
    async [Symbol.asyncDispose]() {
      server.forceShutdown();
    },
  };
}

async function registerAt(socket: string, request: RegisterRequest): Promise<void> {
  const client = new Client(`unix:${socket}`, credentials.createInsecure(), { "grpc.use_local_subchannel_pool": 1 });
  const { path, requestSerialize, responseDeserialize } = RegistrationService.register;
  try {
    await new Promise<void>((resolve, reject) =>
      client.makeUnaryRequest(path, requestSerialize, responseDeserialize, request, (error) =>
        error ? reject(error) : resolve(),
      ),
    );
  } finally {
    client.close();
  }
}

/** @param devices such as `gpu0`, `gpu0:Unhealthy`, `gpu0@1` of NUMA node 1, or `gpu0@0,1` of two nodes. */
function listing(devices: readonly string[]): Listing {
  return ListAndWatchResponse.fromPartial({
    devices: devices.map((text): Device => {
      const [place = "", health = "Healthy"] = text.split(":");
      const [ID = "", nodes] = place.split("@");
      const topology =
        nodes === undefined ? undefined : { nodes: nodes.split(",").map((node) => ({ ID: BigInt(node) })) };
      return { ID, health, topology };
    }),
  });
}
