import {
  Client,
  Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceDefinition,
  type ServiceError,
  type UntypedServiceImplementation,
  credentials,
  type sendUnaryData,
} from "@grpc/grpc-js";
import { rmSync } from "node:fs";
import { EventsService } from "../../src/gen/containerd-events.ts";
import { type ProxySockets, type RuntimeProxy, type Trap, createTrap } from "./runtime-proxy.ts";
import { ImageServiceService, RuntimeServiceService } from "../../src/gen/cri.ts";

type Bytes = Buffer;
type Raw = { readonly path: string; readonly responseStream: boolean };

const asIs = (bytes: Bytes): Bytes => bytes;
const options = {
  "grpc.max_receive_message_length": 16 << 20,
  "grpc.max_send_message_length": 16 << 20,
  "grpc.use_local_subchannel_pool": 1,
};

/** Starts a proxy to a CRI runtime. Its moments are named by CRI's methods. @param heard gets each call with its headers. */
export async function startCriProxy(
  { socket, upstream }: ProxySockets,
  heard: (method: string, metadata: Metadata) => void = () => undefined,
): Promise<RuntimeProxy> {
  rmSync(socket, { force: true });
  const client = new Client(`unix:${upstream}`, credentials.createInsecure(), {
    ...options,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 500,
  });
  const { at, stopAt } = createTrap();
  const server = new Server(options);
  for (const service of [RuntimeServiceService, ImageServiceService, EventsService]) {
    const [definition, implementation] = passingOn(Object.values(service), client, { at, heard });
    server.addService(definition, implementation);
  }
  await new Promise<void>((resolve, reject) =>
    server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) =>
      error ? reject(error) : resolve(),
    ),
  );
  return {
    socket,
    stopAt,
    async [Symbol.asyncDispose]() {
      server.forceShutdown();
      client.close();
      rmSync(socket, { force: true });
    },
  };
}

/** The same methods with bytes in place of messages, each passed on. */
function passingOn(
  methods: readonly Raw[],
  client: Client,
  { at, heard }: Pick<Trap, "at"> & { readonly heard: (method: string, metadata: Metadata) => void },
): [ServiceDefinition, UntypedServiceImplementation] {
  const definition: Record<string, ServiceDefinition[string]> = {};
  const implementation: UntypedServiceImplementation = {};
  for (const { path, responseStream } of methods) {
    const name = path.slice(path.lastIndexOf("/") + 1);
    definition[name] = {
      path,
      requestStream: false,
      responseStream,
      requestSerialize: asIs,
      requestDeserialize: asIs,
      responseSerialize: asIs,
      responseDeserialize: asIs,
    };
    implementation[name] = responseStream
      ? (call: ServerWritableStream<Bytes, Bytes>) => passStream(client, path, call)
      : (call: ServerUnaryCall<Bytes, Bytes>, answer: sendUnaryData<Bytes>) => {
          heard(name, call.metadata);
          void passCall(client, path, { call, answer, at: (when) => at(`${when} ${name}`) });
        };
  }
  return [definition, implementation];
}

interface Passing {
  readonly call: ServerUnaryCall<Bytes, Bytes>;
  readonly answer: sendUnaryData<Bytes>;
  readonly at: (when: "before" | "during" | "after") => Promise<boolean>;
}

const dropped = { code: 14, details: "dropped by the proxy" };

/** A caller that goes away takes its call with it, as it does on a socket of its own. */
async function passCall(client: Client, path: string, { call, answer, at }: Passing): Promise<void> {
  if (await at("before")) return answer(dropped);
  const deadline = call.getDeadline();
  const limit = deadline === Number.POSITIVE_INFINITY ? {} : { deadline };
  const passed = new Promise<{ error: ServiceError | null; response?: Bytes }>((resolve) => {
    const upstream = client.makeUnaryRequest(path, asIs, asIs, call.request, call.metadata, limit, (error, response) =>
      resolve({ error, ...(response && { response }) }),
    );
    call.on("cancelled", () => upstream.cancel());
  });
  await at("during");
  const { error, response } = await passed;
  if (await at("after")) return answer(dropped);
  if (error) answer({ code: error.code, details: error.details, metadata: error.metadata });
  else answer(null, response);
}

function passStream(client: Client, path: string, call: ServerWritableStream<Bytes, Bytes>): void {
  const upstream = client.makeServerStreamRequest(path, asIs, asIs, call.request, call.metadata);
  upstream.on("data", (message: Bytes) => call.write(message));
  upstream.on("error", (error: ServiceError) =>
    call.emit("error", { code: error.code, details: error.details, metadata: error.metadata ?? new Metadata() }),
  );
  upstream.on("end", () => call.end());
  call.on("cancelled", () => upstream.cancel());
}
