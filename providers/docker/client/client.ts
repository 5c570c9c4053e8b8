import type { Agent } from "node:http";
import Dockerode from "dockerode";
import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError, hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import type { Host } from "../../../src/seams/host.ts";
import { askForJson } from "./answer-stream.ts";
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
  /** The API version agreed on, such as `1.41`. */
  apiVersion(signal: AbortSignal): Promise<string>;
  /** When the daemon answered last, Clock.monotonic(); undefined before its first answer, and while a call has waited for one for
   *  long. */
  answeredAt(): number | undefined;
  close(): void;
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

/** The oldest API that has what a kubelet needs (Docker Engine 20.10), and the newest that this provider speaks. Every daemon
 *  from 20.10 on serves one of these. @see https://docs.docker.com/reference/api/engine/version-history/ */
const oldest = "1.41";
const newest = "1.44";

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
    const version = agreedVersion(await ask<EngineVersion>(plain, { path: "/version", signal }), socket);
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
  return {
    call: (work, signal, limit = requestTimeoutMs) =>
      within(
        async (until) => {
          const { engine, apart, forUser } = await agree(until);
          return work(engine, until, apart, forUser);
        },
        signal,
        limit,
      ),
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

export interface Question {
  readonly method?: "GET" | "POST" | "DELETE";
  /** Without version and query. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean>>;
  readonly body?: object;
  readonly signal: AbortSignal;
}

/** Asks what dockerode has no method for that takes a signal. A question that changes nothing is asked once more where its
 *  connection broke off: the daemon, or what stands before it, may have given up one that was kept. @returns the answer's JSON. */
export async function ask<T>(engine: Dockerode, question: Question): Promise<T> {
  try {
    return await askOnce<T>(engine, question);
  } catch (error) {
    if ((question.method ?? "GET") !== "GET" || !brokeOff(error) || question.signal.aborted) throw error;
    return askOnce<T>(engine, question);
  }
}

async function askOnce<T>(engine: Dockerode, { body, ...question }: Question): Promise<T> {
  return (await askForJson(engine, { ...question, ...(body && { json: body }) })) as T;
}

interface EngineVersion {
  readonly ApiVersion: string;
  readonly MinAPIVersion?: string;
  readonly Version: string;
}

/** @throws CodedError failed_precondition, one sentence, when the daemon speaks no version that this provider does. */
export function agreedVersion({ ApiVersion, MinAPIVersion, Version }: EngineVersion, socket: string): string {
  if (typeof ApiVersion !== "string" || typeof Version !== "string")
    throw new CodedError(
      "failed_precondition",
      `what answers at ${socket} is not a Docker Engine: name its socket in providerConfig.socket.`,
    );
  const refuse = (what: string) =>
    new CodedError(
      "failed_precondition",
      `the Docker Engine at ${socket} is version ${Version} with API ${MinAPIVersion ?? ApiVersion} to ${ApiVersion}: ${what}`,
    );
  if (compare(ApiVersion, oldest) < 0)
    throw refuse(`upgrade it to Docker Engine 20.10 (API ${oldest}) or newer for graftlet to run pods on it.`);
  if (MinAPIVersion && compare(MinAPIVersion, newest) > 0)
    throw refuse(`it no longer serves API ${newest}, the newest that this graftlet speaks; use a newer graftlet.`);
  return compare(ApiVersion, newest) < 0 ? ApiVersion : newest;
}

function compare(a: string, b: string): number {
  const [aMajor = 0, aMinor = 0] = a.split(".").map(Number);
  const [bMajor = 0, bMinor = 0] = b.split(".").map(Number);
  return aMajor - bMajor || aMinor - bMinor;
}
