import { BinaryReader } from "@bufbuild/protobuf/wire";
import { Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData } from "@grpc/grpc-js";

/** A span as a collector receives it. */
export interface SentSpan {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  /** Empty for the first of a trace. */
  readonly parentSpanId: string;
  /** 1 inside, 2 server, 3 client. */
  readonly kind: number;
  /** Nanoseconds since the epoch. */
  readonly start: bigint;
  readonly end: bigint;
  readonly attributes: Readonly<Record<string, string>>;
  /** Those of the resource: who sent it. */
  readonly resource: Readonly<Record<string, string>>;
  readonly scope: string;
  /** Message of a status that is an error. */
  readonly error?: string;
}

export interface Collector extends AsyncDisposable {
  /** Address in gRPC's words. */
  readonly endpoint: string;
  /** All that has come so far. */
  readonly spans: readonly SentSpan[];
}

/** A collector that takes traces over OTLP by gRPC. @param address `unix:///PATH`, or `127.0.0.1:0` for a free port.
 *  @see https://github.com/open-telemetry/opentelemetry-proto/blob/v1.11.0/opentelemetry/proto/collector/trace/v1/trace_service.proto */
export async function startCollector(address = "127.0.0.1:0"): Promise<Collector> {
  const spans: SentSpan[] = [];
  const server = new Server();
  const itself = (bytes: Buffer) => bytes;
  const method = {
    path: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    requestStream: false,
    responseStream: false,
    requestSerialize: itself,
    requestDeserialize: itself,
    responseSerialize: itself,
    responseDeserialize: itself,
  } as const;
  server.addService(
    { export: method },
    {
      export({ request }: ServerUnaryCall<Buffer, Buffer>, answer: sendUnaryData<Buffer>) {
        spans.push(...spansOf(request));
        answer(null, Buffer.alloc(0));
      },
    },
  );
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  server.bindAsync(address, ServerCredentials.createInsecure(), (error, port) =>
    error ? reject(error) : resolve(port),
  );
  const port = await promise;
  return {
    endpoint: address.startsWith("unix:") ? address : `127.0.0.1:${port}`,
    spans,
    [Symbol.asyncDispose]: async () => server.forceShutdown(),
  };
}

/** The fields of a message of protobuf, by number. */
type Fields = ReadonlyMap<number, readonly (Uint8Array | bigint | number)[]>;

function fieldsOf(message: Uint8Array): Fields {
  const fields = new Map<number, (Uint8Array | bigint | number)[]>();
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [number, wire] = reader.tag();
    const value = [
      () => BigInt(reader.uint64()),
      () => BigInt(reader.fixed64()),
      () => reader.bytes(),
      () => 0,
      () => 0,
      () => reader.fixed32(),
    ][wire]?.();
    if (value !== undefined) fields.set(number, [...(fields.get(number) ?? []), value]);
  }
  return fields;
}

const messages = (fields: Fields, number: number): Fields[] =>
  (fields.get(number) ?? []).flatMap((value) => (value instanceof Uint8Array ? [fieldsOf(value)] : []));
const bytes = (fields: Fields | undefined, number: number): Buffer => {
  const value = fields?.get(number)?.[0];
  return Buffer.from(value instanceof Uint8Array ? value : []);
};

const integer = (fields: Fields, number: number): bigint => {
  const value = fields.get(number)?.[0];
  return typeof value === "bigint" ? value : 0n;
};

function spansOf(request: Buffer): SentSpan[] {
  return messages(fieldsOf(request), 1).flatMap((ofResource) =>
    messages(ofResource, 2).flatMap((ofScope) =>
      messages(ofScope, 2).map((span) => ({
        name: bytes(span, 5).toString(),
        traceId: bytes(span, 1).toString("hex"),
        spanId: bytes(span, 2).toString("hex"),
        parentSpanId: bytes(span, 4).toString("hex"),
        kind: Number(span.get(6)?.[0] ?? 0),
        start: integer(span, 7),
        end: integer(span, 8),
        attributes: attributesOf(span, 9),
        resource: attributesOf(messages(ofResource, 1)[0], 1),
        scope: bytes(messages(ofScope, 1)[0], 1).toString(),
        ...errorOf(messages(span, 15)[0]),
      })),
    ),
  );
}

/** A status of code 2. */
function errorOf(status: Fields | undefined): { readonly error?: string } {
  return Number(status?.get(3)?.[0] ?? 0) === 2 ? { error: bytes(status, 2).toString() } : {};
}

/** KeyValues as text: strings and integers. */
function attributesOf(message: Fields | undefined, number: number): Record<string, string> {
  if (!message) return {};
  return Object.fromEntries(
    messages(message, number).map((pair) => {
      const value = messages(pair, 2)[0];
      const integer = value?.get(3)?.[0];
      return [bytes(pair, 1).toString(), integer === undefined ? bytes(value, 1).toString() : String(integer)];
    }),
  );
}
