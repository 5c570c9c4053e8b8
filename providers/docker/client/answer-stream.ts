import type { IncomingMessage } from "node:http";
import { addAbortSignal } from "node:stream";
import { finished } from "node:stream/promises";
import type Modem from "docker-modem";
import type Dockerode from "dockerode";
import { boundedErrorText, parseBoundedJson } from "../../../src/lib/bounded-text.ts";
import { CodedError, hasCode } from "../../../src/lib/errors.ts";
import { KeptBytes } from "../../../src/lib/kept-bytes.ts";
import type { TargetBudget } from "../../../src/lib/target-budget.ts";

/** A request whose answer is read as a stream. */
export interface StreamQuestion {
  readonly method?: "GET" | "POST" | "DELETE";
  /** Without version and query. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean | readonly string[]>>;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON. */
  readonly json?: object;
  /** Sent as is, a tar archive. */
  readonly body?: Buffer;
  /** Ends the request and the answer. */
  readonly signal: AbortSignal;
}

/** Every status: refusals are read below, limited in size, for the daemon's own message. */
const statuses = Object.fromEntries(Array.from({ length: 400 }, (_, index) => [200 + index, true]));
const maxRefusalBytes = 64 * 1024;
/** Limit of one answer. Lists of 2,000 containers with 4 KiB of labels each are within it. */
const maxAnswerBytes = 8 * 1024 * 1024;

/** Sends a request and reads the whole answer.
 *  @param budget charged with the memory that the answer takes.
 *  @returns its JSON; undefined when it has none.
 *  @throws errors that `codedDockerError` classifies; CodedError resource_exhausted for more than 8 MiB, or too many values. */
export async function askForJson(engine: Dockerode, question: StreamQuestion, budget?: TargetBudget): Promise<unknown> {
  const answer = await askForStream(engine, question);
  const { bytes, whole } = await read(answer, maxAnswerBytes);
  if (whole) return jsonOf(bytes, budget);
  const what = `${question.method ?? "GET"} ${question.path}`;
  throw new CodedError(
    "resource_exhausted",
    `the Docker Engine answers ${what} with more than ${maxAnswerBytes} bytes`,
  );
}

/** Sends a request and returns once the answer's head has arrived. The caller reads the body to its end or aborts the
 *  signal.
 *  @throws errors that `codedDockerError` classifies. */
export async function askForStream(
  engine: Dockerode,
  { method = "GET", path, query = {}, headers = {}, json = {}, body, signal }: StreamQuestion,
): Promise<IncomingMessage> {
  const modem: Modem = engine.modem;
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
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
  // Whoever reads the answer hears it, too.
  answer.on("error", () => undefined);
  // The request's own signal does not cover the answer's body.
  addAbortSignal(signal, answer);
  if ((answer.statusCode ?? 0) >= 300) throw await refusalOf(answer);
  return answer;
}

/** An error shaped like dockerode's, as `codedDockerError` reads it. */
async function refusalOf(answer: IncomingMessage): Promise<Error> {
  const { bytes, whole } = await read(answer, maxRefusalBytes);
  if (!whole) throw new CodedError("unknown", `HTTP ${answer.statusCode} with an oversized body`);
  const text = bytes.toString().trim();
  return Object.assign(new Error(boundedErrorText(text) || `HTTP ${answer.statusCode}`), {
    statusCode: answer.statusCode,
    json: jsonOf(bytes),
  });
}

/** An answer's body up to a limit. */
async function read(
  answer: IncomingMessage,
  limit: number,
): Promise<{ readonly bytes: Buffer; readonly whole: boolean }> {
  const kept = new KeptBytes(limit);
  let whole = true;
  // A chunk is taken as it comes: thousands of one byte each are not queued.
  answer.on("data", (chunk: Buffer) => {
    whole &&= kept.add(chunk);
    if (!whole) answer.destroy();
  });
  try {
    await finished(answer);
  } catch (error) {
    if (whole) throw error;
  }
  return { bytes: kept.bytes(), whole };
}

/** Undefined for what is not JSON. */
function jsonOf(text: Buffer, budget?: TargetBudget): unknown {
  try {
    return parseBoundedJson(text, budget);
  } catch (error) {
    if (hasCode(error, "resource_exhausted")) throw error;
    return undefined;
  }
}
