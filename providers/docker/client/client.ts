import type { Agent } from "node:http";
import Dockerode from "dockerode";
import type { Clock } from "../../../src/lib/clock.ts";
import { hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import type { TargetBudget } from "../../../src/lib/target-budget.ts";
import type { Host } from "../../../src/seams/host.ts";
import { askForJson } from "./answer-stream.ts";
import { type EngineVersion, agreedVersion } from "./api-version.ts";
import { DialAgent } from "./dial-agent.ts";
import { brokeOff, codedDockerError } from "./errors.ts";

/** Deadline of a call: milliseconds, milliseconds in addition to an ordinary call's, or none except the signal (streams, pulls, waits). */
export type Limit = number | { readonly beyondMs: number } | "none";

/** Client of a Docker daemon. It connects on first use; while the daemon does not respond, calls fail at once with `unavailable`. */
export interface Docker {
  /** Runs one API call.
   *  @param work gets dockerode at the negotiated API version and the signal to pass on as `abortSignal`; also, for
   *  streams, an engine with a connection per call, and the same for requests of kubelet API users.
   *  @param limit deadline; an ordinary call's by default.
   *  @throws CodedError with the daemon's message. */
  call<T>(
    work: (engine: Dockerode, abortSignal: AbortSignal, apart: Dockerode, forUser: Dockerode) => Promise<T>,
    signal: AbortSignal,
    limit?: Limit,
  ): Promise<T>;
  /** Sends one request. @returns the response's JSON. @throws CodedError with the daemon's message. */
  ask<T>(request: Request, signal: AbortSignal, limit?: Limit): Promise<T>;
  /** The negotiated API version, such as `1.41`. */
  apiVersion(signal: AbortSignal): Promise<string>;
  /** Time of the daemon's last response, Clock.monotonic(); undefined before the first one, and while a call has been waiting for too long. */
  answeredAt(): number | undefined;
  close(): void;
}

/** A request of the Engine API. */
export interface Request {
  readonly method?: "GET" | "POST" | "DELETE";
  /** Without version and query. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean>>;
  /** Sent as JSON. */
  readonly body?: object;
}

export interface DockerOptions {
  /** Absolute path of the daemon's socket on the target. */
  readonly socket: string;
  readonly host: Pick<Host, "dial" | "forUsers" | "budget">;
  /** Deadline of an ordinary call, milliseconds. */
  readonly requestTimeoutMs: number;
  readonly clock: Clock;
}

/** A call that waits longer than this may be waiting for an unresponsive daemon, milliseconds. */
const longMs = 5_000;

interface Agreed {
  readonly version: string;
  readonly engine: Dockerode;
  /** Keeps no connections alive. */
  readonly apart: Dockerode;
  readonly forUser: Dockerode;
}

/** Message of a daemon that rejects the API version of a call: another daemon has replaced the one whose version was negotiated.
 *  @see https://docs.docker.com/reference/api/engine/#versioned-api-and-sdk */
const refusedVersion = /^client version \S+ is too (?:new|old)\b/;

/** Creates the client. The negotiated version is kept until a call finds the daemon unavailable, or the daemon rejects the version: it may
 *  come back as another version. */
export function createDocker({ socket, host, requestTimeoutMs, clock }: DockerOptions): Docker {
  const agent = new DialAgent({ host, socket, clock, keep: true });
  const agentApart = new DialAgent({ host, socket, clock, keep: false });
  const agentForUsers = new DialAgent({ host: host.forUsers ?? host, socket, clock, keep: false });
  const engineOf = (by: Agent, version?: string) => {
    const options: Dockerode.DockerOptions & { agent: Agent } = { socketPath: socket, agent: by };
    return new Dockerode(version === undefined ? options : { ...options, version: `v${version}` });
  };
  const plain = engineOf(agent);
  let agreed: Agreed | undefined;
  const agree = async (signal: AbortSignal): Promise<Agreed> => {
    if (agreed) return agreed;
    const version = agreedVersion(await ask<EngineVersion>(plain, { path: "/version" }, signal, host.budget), socket);
    agreed = {
      version,
      engine: engineOf(agent, version),
      apart: engineOf(agentApart, version),
      forUser: engineOf(agentForUsers, version),
    };
    return agreed;
  };
  const answers = createAnswers(clock);
  const within = async <T>(work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal, limit: Limit) => {
    throwIfAborted(signal);
    const until = limit === "none" ? signal : clock.within(deadlineMs(limit, requestTimeoutMs), signal);
    using waiting = answers.wait(limit);
    try {
      const answer = await work(until);
      waiting.answered();
      return answer;
    } catch (error) {
      const coded = codedDockerError(error, socket, until);
      if (hasCode(coded, "unavailable") || refusedVersion.test(coded.message)) agreed = undefined;
      throw coded;
    }
  };
  const call: Docker["call"] = (work, signal, limit = requestTimeoutMs) =>
    within(
      async (until) => {
        const { engine, apart, forUser } = await agree(until);
        return work(engine, until, apart, forUser);
      },
      signal,
      limit,
    );
  return {
    call,
    ask: (request, signal, limit) => call((engine, until) => ask(engine, request, until, host.budget), signal, limit),
    answeredAt: answers.latest,
    apiVersion: (signal) => within(async (until) => (await agree(until)).version, signal, requestTimeoutMs),
    close() {
      agent.destroy();
      agentApart.destroy();
      agentForUsers.destroy();
    },
  };
}

/** Tracks waiting calls and the time of the last response. Calls without a limit are not counted: they may wait for something other than
 *  the daemon. */
function createAnswers(clock: Clock) {
  const waiting = new Set<{ readonly since: number }>();
  let latest: number | undefined;
  return {
    wait(limit: Limit) {
      const call = { since: clock.monotonic() };
      if (limit !== "none") waiting.add(call);
      return {
        answered: () => void (latest = clock.monotonic()),
        [Symbol.dispose]: () => void waiting.delete(call),
      };
    },
    latest() {
      const longSince = clock.monotonic() - longMs;
      return [...waiting].some(({ since }) => since < longSince) ? undefined : latest;
    },
  };
}

function deadlineMs(limit: Exclude<Limit, "none">, requestTimeoutMs: number): number {
  return typeof limit === "number" ? limit : requestTimeoutMs + limit.beyondMs;
}

/** Sends a request and reads its response. A GET is repeated once if its connection broke: the daemon, or a proxy in front of it, may have
 *  closed a kept-alive one.
 *  @returns the response's JSON. */
async function ask<T>(
  engine: Dockerode,
  request: Request,
  signal: AbortSignal,
  budget: TargetBudget | undefined,
): Promise<T> {
  const { body, ...question } = request;
  const once = async () =>
    (await askForJson(engine, { ...question, ...(body && { json: body }), signal }, budget)) as T;
  try {
    return await once();
  } catch (error) {
    if ((request.method ?? "GET") !== "GET" || !brokeOff(error) || signal.aborted) throw error;
    return once();
  }
}
