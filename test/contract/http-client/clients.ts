import { createInterface } from "node:readline";
import { probeHttp } from "../../../src/probes/attempt.ts";
import { createHooks } from "../../../src/runtime/hooks.ts";
import { type HttpGet, httpActionRequest } from "../../../src/pod/http-action.ts";
import { messageOf } from "../../../src/lib/errors.ts";
import { dialLocal } from "../../../providers/local/dial.ts";
import type { Host } from "../../../src/seams/host.ts";
import { eventLines } from "../../fakes/events.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { start } from "../../harness/processes.ts";
import { buildProgram } from "../../harness/tools.ts";

export interface Ask {
  readonly kind: "probe" | "hook";
  readonly action: HttpGet;
  readonly podIP: string;
  readonly timeoutMs: number;
}

/** A verdict and the message that users read. */
export interface Said {
  readonly is: string;
  readonly output: string;
  /** A hook was made again without TLS. */
  readonly fallback: boolean;
}

export interface HttpClient {
  ask(ask: Ask): Promise<Said>;
}

/** The kubelet's prober and Go's client, built once per machine in seconds. */
export async function startKubeletClient(): Promise<HttpClient & AsyncDisposable> {
  const program = await buildProgram({ name: "kubelet-http", module: "prober" }, (line) => console.error(line));
  const child = start([program], { stdio: ["pipe", "pipe", "inherit"] });
  const { stdin, stdout } = child;
  if (!stdin || !stdout) throw new Error("kubelet-http has no pipes");
  const waiting = new Map<number, (said: Said) => void>();
  createInterface({ input: stdout }).on("line", (line) => {
    const { id, ...said } = JSON.parse(line) as Said & { id: number };
    waiting.get(id)?.(said);
    waiting.delete(id);
  });
  let last = 0;
  return {
    ask: (ask) =>
      new Promise((resolve) => {
        const id = ++last;
        waiting.set(id, resolve);
        stdin.write(`${JSON.stringify({ id, ...ask })}\n`);
      }),
    async [Symbol.asyncDispose]() {
      stdin.end();
      await new Promise((resolve) => child.once("close", resolve));
    },
  };
}

/** Graftlet's. @param host what dials, this machine unless given. */
export function graftletClient(host: Pick<Host, "dial"> = { dial: dialLocal }): HttpClient {
  return { ask: (ask) => (ask.kind === "probe" ? probe(host, ask) : hook(host, ask)) };
}

async function probe(host: Pick<Host, "dial">, { action, podIP, timeoutMs }: Ask): Promise<Said> {
  try {
    const request = httpActionRequest(action, action.host || podIP, Number(action.port), "probe");
    const outcome = await probeHttp(host, request, AbortSignal.timeout(timeoutMs));
    return {
      is: outcome.kind,
      output: "output" in outcome ? outcome.output : messageOf(outcome.error),
      fallback: false,
    };
  } catch (error) {
    return { is: "error", output: messageOf(error), fallback: false };
  }
}

async function hook(host: Pick<Host, "dial">, { action, podIP }: Ask): Promise<Said> {
  const events = eventLines();
  const runtime = { execSync: () => Promise.reject(new Error("no commands here")) };
  const hooks = createHooks({ host, runtime, events, measures: unmeasured.hooks, clock: fakeClock() });
  const target = { pod: aPod(), container: aContainer("c"), containerId: "id", podIP };
  const fallback = () => events.lines.length > 0;
  try {
    await hooks.run({ httpGet: action }, target, AbortSignal.timeout(10_000));
    return { is: "success", output: "", fallback: fallback() };
  } catch (error) {
    return { is: "failure", output: messageOf(error).replace(/^.*? failed - error: /s, ""), fallback: fallback() };
  }
}
