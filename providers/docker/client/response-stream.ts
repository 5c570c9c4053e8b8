import type { IncomingMessage } from "node:http";
import { addAbortSignal } from "node:stream";
import { finished } from "node:stream/promises";
import type Modem from "docker-modem";
import type Dockerode from "dockerode";
import { boundedErrorText, parseBoundedJson } from "../../../src/lib/bounded-text.ts";
import { CodedError, hasCode } from "../../../src/lib/errors.ts";
import { BoundedBuffer } from "../../../src/lib/bounded-buffer.ts";
import type { TargetBudget } from "../../../src/lib/target-budget.ts";

/** A request whose response is read as a stream. */
export interface StreamRequest {
  readonly method?: "GET" | "POST" | "DELETE";
  /** Path without API version and query. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean | readonly string[]>>;
  readonly headers?: Readonly<Record<string, string>>;
  /** Request body, which is sent as JSON. */
  readonly json?: object;
  /** Request body, which is sent as is: a tar archive. */
  readonly body?: Buffer;
  /** Aborts the request and the response. */
  readonly signal: AbortSignal;
}

/** Makes dockerode accept all statuses: error responses are read below, limited in size, to get the daemon's message. */
const statuses = Object.fromEntries(Array.from({ length: 400 }, (_, index) => [200 + index, true]));
const maxErrorBodyBytes = 64 * 1024;
/** Limit of one response. Lists of 2,000 containers with 4 KiB of labels each are within it. */
const maxResponseBytes = 8 * 1024 * 1024;
/** Maximum number of chunks in a response; each chunk takes time to process. The Docker Engine sends at least 2 KiB per chunk. */
const maxResponseChunks = 20_000;

/** Sends a request and reads the whole response.
 *  @param budget charged for the memory of the response.
 *  @returns its JSON; undefined if it has none.
 *  @throws errors that `codedDockerError` classifies; CodedError resource_exhausted for more than 8 MiB, or too many values. */
export async function requestJson(engine: Dockerode, request: StreamRequest, budget?: TargetBudget): Promise<unknown> {
  const response = await requestStream(engine, request);
  const { bytes, whole } = await readBody(response, maxResponseBytes);
  if (whole) return parseJson(bytes, budget);
  const what = `${request.method ?? "GET"} ${request.path}`;
  throw new CodedError(
    "resource_exhausted",
    `the Docker Engine's response to ${what} exceeds ${maxResponseBytes} bytes or ${maxResponseChunks} chunks`,
  );
}

/** Sends a request and returns once the response's headers have arrived. The caller reads the body to its end or aborts the signal.
 *  @throws errors that `codedDockerError` classifies. */
export async function requestStream(
  engine: Dockerode,
  { method = "GET", path, query = {}, headers = {}, json = {}, body, signal }: StreamRequest,
): Promise<IncomingMessage> {
  const modem: Modem = engine.modem;
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    modem.dial(
      {
        method,
        path: `${path}?`,
        options: { _query: query, _body: json },
        headers: { ...headers },
        ...(body && { file: body }),
        isStream: true,
        statusCodes: statuses,
        abortSignal: signal,
      },
      (error, message) => (error ? reject(error) : resolve(message as IncomingMessage)),
    );
  });
  // The reader of the response gets the error, too.
  response.on("error", () => undefined);
  // The request's own signal does not cover the response's body.
  addAbortSignal(signal, response);
  if ((response.statusCode ?? 0) >= 300) throw await errorFromResponse(response);
  return response;
}

/** Creates an error in dockerode's form, for `codedDockerError`. */
async function errorFromResponse(response: IncomingMessage): Promise<Error> {
  const { bytes, whole } = await readBody(response, maxErrorBodyBytes);
  if (!whole) throw new CodedError("unknown", `HTTP ${response.statusCode} with an oversized body`);
  const text = bytes.toString().trim();
  return Object.assign(new Error(boundedErrorText(text) || `HTTP ${response.statusCode}`), {
    statusCode: response.statusCode,
    json: parseJson(bytes),
  });
}

/** Reads a response's body, up to a limit of bytes and of pieces. */
async function readBody(
  response: IncomingMessage,
  limit: number,
): Promise<{ readonly bytes: Buffer; readonly whole: boolean }> {
  const buffer = new BoundedBuffer(limit);
  let [whole, chunks] = [true, 0];
  // Chunks are processed on arrival: thousands of one byte each would otherwise be queued.
  response.on("data", (chunk: Buffer) => {
    chunks += 1;
    whole &&= chunks <= maxResponseChunks && buffer.add(chunk);
    if (!whole) response.destroy();
  });
  try {
    await finished(response);
  } catch (error) {
    if (whole) throw error;
  }
  return { bytes: buffer.bytes(), whole };
}

/** Parses a body; undefined if it is not JSON. */
function parseJson(text: Buffer, budget?: TargetBudget): unknown {
  try {
    return parseBoundedJson(text, budget);
  } catch (error) {
    if (hasCode(error, "resource_exhausted")) throw error;
    return undefined;
  }
}
