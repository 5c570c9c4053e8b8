import type { IncomingMessage } from "node:http";
import { addAbortSignal } from "node:stream";
import type Modem from "docker-modem";
import type Dockerode from "dockerode";
import { CodedError } from "../../src/lib/errors.ts";

/** A question whose answer is read as it comes. */
export interface StreamQuestion {
  readonly method?: "GET" | "POST";
  /** Without version and query. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | readonly string[]>>;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as it is, as a tar archive. */
  readonly body?: Buffer;
  /** Ends the question and the answer. */
  readonly signal: AbortSignal;
}

/** Every status that the daemon answers with: refusals are read here, in the daemon's own words. */
const statuses = Object.fromEntries(
  [200, 201, 304, 400, 401, 403, 404, 406, 409, 413, 500, 501, 502, 503].map((status) => [status, true]),
);
const maxRefusalBytes = 64 * 1024;

/** Asks, and returns once the head of the answer is there. The caller reads the body to its end or aborts the signal.
 *  @throws what `codedDockerError` classifies. */
export async function askForStream(
  engine: Dockerode,
  { method = "GET", path, query = {}, headers = {}, body, signal }: StreamQuestion,
): Promise<IncomingMessage> {
  const modem: Modem = engine.modem;
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    modem.dial(
      {
        method,
        path: `${path}?`,
        options: { _query: query, _body: {} },
        headers: { ...headers },
        ...(body && { file: body }),
        isStream: true,
        statusCodes: statuses,
        abortSignal: signal,
      },
      (error, message) => (error ? reject(error) : resolve(message as IncomingMessage)),
    );
  });
  // The request's own signal does not reach an answer that is being read.
  addAbortSignal(signal, answer);
  if ((answer.statusCode ?? 0) >= 300) throw await refusalOf(answer);
  return answer;
}

/** The shape that dockerode's errors have, which `codedDockerError` reads. */
async function refusalOf(answer: IncomingMessage): Promise<Error> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > maxRefusalBytes) throw new CodedError("unknown", `HTTP ${answer.statusCode} with too long a body`);
    chunks.push(chunk);
  }
  const text = Buffer.concat(chunks).toString().trim();
  return Object.assign(new Error(text || `HTTP ${answer.statusCode}`), {
    statusCode: answer.statusCode,
    json: jsonOf(text),
  });
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
