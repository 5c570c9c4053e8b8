import type { Agent } from "node:http";
import Dockerode from "dockerode";
import type { Clock } from "../../../src/lib/clock.ts";
import { hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import type { Host } from "../../../src/seams/host.ts";
import { askForJson } from "./answer-stream.ts";
import { type EngineVersion, agreedVersion } from "./api-version.ts";
import { DialAgent } from "./dial-agent.ts";
import { brokeOff, codedDockerError } from "./errors.ts";

/** How long a call may take: milliseconds, milliseconds on top of an ordinary call's, or no limit but the signal's (streams,
 *  pulls, waits). */
export type Limit = number | { readonly beyondMs: number } | "none";

/** A Docker daemon, connected to when asked; while it does not answer, calls fail at once with `unavailable`. */
export interface Docker {
  /** Runs one API call. @param work gets dockerode at the version agreed on with the daemon, and the signal to hand on as
   *  `abortSignal`; for what becomes a stream also one of which each call has a connection of its own, and such a one for what a user of the
   *  kubelet API asked for. @param limit the call's
   *  deadline; the ordinary one when left out.
   *  @throws CodedError with the daemon's words as its message. */
  call<T>(
    work: (engine: Dockerode, abortSignal: AbortSignal, apart: Dockerode, forUser: Dockerode) => Promise<T>,
    signal: AbortSignal,
    limit?: Limit,
  ): Promise<T>;
  /** Makes one request. @returns the answer's JSON. @throws CodedError with the daemon's words as its message. */
  ask<T>(request: Request, signal: AbortSignal, limit?: Limit): Promise<T>;
  /** The API version agreed on, such as `1.41`. */
  apiVersion(signal: AbortSignal): Promise<string>;
  /** When the daemon answered last, Clock.monotonic(); undefined before its first answer, and while a call has waited for one for
   *  long. */
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
  readonly host: Pick<Host, "dial" | "forUsers">;
  /** Deadline of an ordinary call, milliseconds. */
  readonly requestTimeoutMs: number;
  readonly clock: Clock;
}

/** A call that has waited so long may be waiting for a daemon that says nothing any more, milliseconds. */
const longMs = 5_000;

interface Agreed {
  readonly version: string;
  readonly engine: Dockerode;
  /** Does not keep its connections. */
  readonly apart: Dockerode;
  readonly forUser: Dockerode;
}

/** A daemon that comes back may be another version: what was agreed on holds until a call finds it out of reach. */
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
    const version = agreedVersion(await ask<EngineVersion>(plain, { path: "/version" }, signal), socket);
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
      if (hasCode(coded, "unavailable")) agreed = undefined;
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
    ask: (request, signal, limit) => call((engine, until) => ask(engine, request, until), signal, limit),
    answeredAt: answers.latest,
    apiVersion: (signal) => within(async (until) => (await agree(until)).version, signal, requestTimeoutMs),
    close() {
      agent.destroy();
      agentApart.destroy();
      agentForUsers.destroy();
    },
  };
}

/** Which calls wait, and when one was answered last. One without a limit may wait for anything but the daemon. */
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

/** Sends a request and reads its answer. A GET is sent once more where its connection broke off: the daemon, or a proxy before it,
 *  may have closed a kept one. @returns the answer's JSON. */
async function ask<T>(engine: Dockerode, request: Request, signal: AbortSignal): Promise<T> {
  const { body, ...question } = request;
  const once = async () => (await askForJson(engine, { ...question, ...(body && { json: body }), signal })) as T;
  try {
    return await once();
  } catch (error) {
    if ((request.method ?? "GET") !== "GET" || !brokeOff(error) || signal.aborted) throw error;
    return once();
  }
}
