import {
  type handleUnaryCall,
  Server,
  ServerCredentials,
  type ServerWritableStream,
  status,
  type UntypedServiceImplementation,
} from "@grpc/grpc-js";
import {
  ContainerEventResponse,
  ContainerEventType,
  type GetEventsRequest,
  ImageServiceService,
  ImageSpec,
  RuntimeServiceService,
} from "../../src/gen/cri.ts";
import { codeOf, type ErrorCode, messageOf } from "../../src/lib/errors.ts";
import type { Runtime, RuntimeEvent } from "../../src/seams/runtime.ts";

/** Handlers of some of a service's unary calls. */
type Methods<Service> = {
  readonly [Name in keyof Service]?: Service[Name] extends {
    readonly requestDeserialize: (bytes: Buffer) => infer Request;
  }
    ? Method<Request>
    : never;
};
type Method<Request> = (request: Request, signal: AbortSignal) => Promise<object | void>;

/** Serves a runtime over CRI v1 on a Unix socket, without the calls that a node makes for streams, checkpoints and statistics of sandboxes.
 *  @returns what stops it. */
export async function serveCri(runtime: Runtime, socket: string): Promise<Disposable> {
  const server = new Server();
  server.addService(RuntimeServiceService, {
    ...unary(runtimeMethods(runtime)),
    getContainerEvents: (call: ServerWritableStream<GetEventsRequest, ContainerEventResponse>) =>
      void sendEvents(runtime, call),
  });
  server.addService(ImageServiceService, unary(imageMethods(runtime)));
  await new Promise<void>((resolve, reject) =>
    server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) =>
      error ? reject(error) : resolve(),
    ),
  );
  return { [Symbol.dispose]: () => server.forceShutdown() };
}

function runtimeMethods(runtime: Runtime): Methods<typeof RuntimeServiceService> {
  return {
    version: (_request, signal) => runtime.version(signal),
    status: (_request, signal) => runtime.status(signal),
    runtimeConfig: (_request, signal) => runtime.runtimeConfig(signal),
    updateRuntimeConfig: (request, signal) => runtime.updateRuntimeConfig(request, signal),
    runPodSandbox: (request, signal) => runtime.runPodSandbox(request, signal),
    stopPodSandbox: ({ podSandboxId }, signal) => runtime.stopPodSandbox(podSandboxId, signal),
    removePodSandbox: ({ podSandboxId }, signal) => runtime.removePodSandbox(podSandboxId, signal),
    podSandboxStatus: ({ podSandboxId }, signal) => runtime.podSandboxStatus(podSandboxId, signal),
    listPodSandbox: async ({ filter }, signal) => ({ items: await runtime.listPodSandbox(filter, signal) }),
    createContainer: (request, signal) => runtime.createContainer(request, signal),
    startContainer: ({ containerId }, signal) => runtime.startContainer(containerId, signal),
    stopContainer: ({ containerId, timeout }, signal) => runtime.stopContainer(containerId, Number(timeout), signal),
    removeContainer: ({ containerId }, signal) => runtime.removeContainer(containerId, signal),
    listContainers: async ({ filter }, signal) => ({ containers: await runtime.listContainers(filter, signal) }),
    containerStatus: ({ containerId }, signal) => runtime.containerStatus(containerId, signal),
    updateContainerResources: (request, signal) => runtime.updateContainerResources(request, signal),
    listContainerStats: async ({ filter }, signal) => ({ stats: await runtime.listContainerStats(filter, signal) }),
  };
}

const none = ImageSpec.fromPartial({});

function imageMethods(runtime: Runtime): Methods<typeof ImageServiceService> {
  return {
    listImages: async (_request, signal) => ({ images: await runtime.listImages(signal) }),
    imageStatus: async ({ image = none }, signal) => ({ image: await runtime.imageStatus(image, signal), info: {} }),
    pullImage: async (request, signal) => ({ imageRef: await runtime.pullImage(request, signal) }),
    removeImage: ({ image = none }, signal) => runtime.removeImage(image, signal),
    imageFsInfo: (_request, signal) => runtime.imageFsInfo(signal),
  };
}

function unary(methods: object): UntypedServiceImplementation {
  const handlers: Record<string, handleUnaryCall<unknown, object>> = {};
  for (const [name, method] of Object.entries<Method<unknown>>({ ...methods })) {
    handlers[name] = (call, answer) => {
      const stop = new AbortController();
      call.on("cancelled", () => stop.abort());
      method(call.request, stop.signal).then(
        (response) => answer(null, response ?? {}),
        (error: unknown) => answer({ code: statusOf(codeOf(error)), details: messageOf(error) }),
      );
    };
  }
  return handlers;
}

const statuses: Partial<Record<ErrorCode, status>> = {
  invalid_argument: status.INVALID_ARGUMENT,
  not_found: status.NOT_FOUND,
  already_exists: status.ALREADY_EXISTS,
  unavailable: status.UNAVAILABLE,
  unimplemented: status.UNIMPLEMENTED,
};

function statusOf(code: ErrorCode | undefined): status {
  return (code && statuses[code]) ?? status.UNKNOWN;
}

async function sendEvents(
  runtime: Runtime,
  call: ServerWritableStream<GetEventsRequest, ContainerEventResponse>,
): Promise<void> {
  const stop = new AbortController();
  call.on("cancelled", () => stop.abort());
  call.on("error", () => stop.abort());
  for await (const event of runtime.events?.(stop.signal) ?? []) {
    const message = messageOfEvent(event);
    if (message) call.write(message);
  }
  call.end();
}

function messageOfEvent(event: RuntimeEvent): ContainerEventResponse | undefined {
  if (event.kind === "listening") return undefined;
  const { sandboxId, containerId, podUid, exited, removed, at = 0 } = event;
  return ContainerEventResponse.fromPartial({
    containerId: containerId ?? sandboxId ?? "",
    containerEventType: exited
      ? ContainerEventType.CONTAINER_STOPPED_EVENT
      : removed
        ? ContainerEventType.CONTAINER_DELETED_EVENT
        : ContainerEventType.CONTAINER_STARTED_EVENT,
    createdAt: BigInt(Math.round(at)) * 1_000_000n,
    ...(sandboxId !== undefined && {
      podSandboxStatus: { id: sandboxId, ...(podUid !== undefined && { metadata: { uid: podUid } }) },
    }),
  });
}
