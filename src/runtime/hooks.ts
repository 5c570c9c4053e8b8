import type * as k8s from "@kubernetes/client-node";
import { type HttpResult, BodyError, httpGet } from "../host/http-get.ts";
import { TlsHandshakeError } from "../host/http-tls.ts";
import { fromLatin1Bytes } from "../lib/latin1-bytes.ts";
import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import { goQuote } from "../lib/go-quote.ts";
import type { Container, Pod, Wire } from "../objects.ts";
import type { EventSink } from "../pipeline.ts";
import { runtimeErrorText } from "../pod/error-text.ts";
import { type HttpGet, httpActionRequest } from "../pod/http-action.ts";
import { podReference } from "../pod/reference.ts";
import { resolvePort } from "../pod/resolve-port.ts";
import type { Host } from "../seams/host.ts";
import type { Containers } from "../seams/runtime.ts";

export type LifecycleHandler = Wire<k8s.V1LifecycleHandler>;

/** The container that the hook belongs to. */
export interface HookTarget {
  readonly pod: Pod;
  readonly container: Pick<Container, "name" | "ports">;
  readonly containerId: string;
  /** The pod's primary address, once it has one. */
  readonly podIP: string | undefined;
}

export type Hooks = ReturnType<typeof createHooks>;

/** Hooks that did not go as configured. */
export interface HookMeasures {
  /** A hook over HTTPS succeeded over HTTP. */
  fellBackToHttp(): void;
  /** A sleep hook was interrupted. */
  sleepCutOff(): void;
}

export interface HookDeps {
  readonly host: Pick<Host, "dial">;
  readonly runtime: Pick<Containers, "execSync">;
  readonly events: EventSink;
  readonly measures: HookMeasures;
  readonly clock: Clock;
}

/** Runs postStart and preStop hooks. An HTTP hook succeeds with any response. If the server of an HTTPS hook speaks plain HTTP, the
 *  request is repeated over HTTP. @see https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/ */
export function createHooks(deps: HookDeps) {
  return {
    /** Runs a hook to completion; the signal interrupts it.
     *  @throws Error with the kubelet's text. It may contain the program's output: use it in statuses, not in events. */
    async run(hook: LifecycleHandler, target: HookTarget, signal: AbortSignal) {
      try {
        await runHandler(deps, hook, target, signal);
      } catch (error) {
        throw new Error(
          `${titleOf(hook)} for Container "${target.container.name}" in Pod "${podName(target)}" failed - ${errorDetail(error)}`,
          {
            cause: error,
          },
        );
      }
    },
  };
}

async function runHandler(
  deps: HookDeps,
  hook: LifecycleHandler,
  target: HookTarget,
  signal: AbortSignal,
): Promise<void> {
  if (hook.exec) return exec(deps.runtime, hook.exec.command ?? [], target.containerId, signal);
  if (hook.httpGet) return get(deps, hook.httpGet, target, signal);
  if (hook.sleep) return sleep(deps, hook.sleep.seconds, signal);
  throw new Error("invalid handler: none of exec, httpGet and sleep is set");
}

/** @throws the signal's reason. */
async function sleep({ measures, clock }: HookDeps, seconds: number, signal: AbortSignal): Promise<void> {
  try {
    await clock.sleep(seconds * 1000, signal);
  } catch (error) {
    measures.sleepCutOff();
    throw error;
  }
}

/** Maximum bytes of a failed command's output to report: the API server rejects a pod status that is too large. */
const maxOutputBytes = 10 * 1024;

/** A command that could not be run, or exited with a non-zero code. */
class CommandError extends Error {
  readonly output: string;
  constructor(message: string, output: string, options?: ErrorOptions) {
    super(message, options);
    this.output = output;
  }
}

async function exec(
  runtime: Pick<Containers, "execSync">,
  command: readonly string[],
  containerId: string,
  signal: AbortSignal,
): Promise<void> {
  const ran = runtime.execSync(containerId, command, 0, signal).catch((error: unknown) => {
    throw new CommandError(runtimeErrorText(error), "", { cause: error });
  });
  const { exitCode, stdout, stderr } = await ran;
  if (exitCode === 0) return;
  const output = (...parts: Uint8Array[]) => Buffer.concat(parts).subarray(0, maxOutputBytes).toString();
  throw new CommandError(
    `command '${command.join(" ")}' exited with ${exitCode}: ${output(stderr)}`,
    output(stdout, stderr),
  );
}

async function get(
  { host, events, measures }: HookDeps,
  action: HttpGet,
  { pod, container, podIP }: HookTarget,
  signal: AbortSignal,
): Promise<void> {
  const to = action.host || podIP;
  if (!to) throw new Error("failed to find networking container: the pod has no address");
  const request = httpActionRequest(action, to, resolvePort(action.port, container), "lifecycle");
  try {
    await ignoreBodyErrors(httpGet(host, request, signal));
  } catch (error) {
    if (!isPlainHttpServer(error)) throw error;
    const headers = new Map([...request.headers].filter(([name]) => name !== "Authorization"));
    const plain = { ...request, url: { ...request.url, scheme: "http" }, headers };
    await ignoreBodyErrors(httpGet(host, plain, signal)).catch(() => {
      throw error;
    });
    const text = `request to HTTPS lifecycle hook ${fromLatin1Bytes(request.url.host)} got HTTP response, retry with HTTP succeeded`;
    measures.fellBackToHttp();
    events.event(podReference(pod), "Warning", "LifecycleHTTPFallback", text);
  }
}

/** A response whose body is cut off counts as a response. */
async function ignoreBodyErrors(asking: Promise<HttpResult>): Promise<void> {
  try {
    await asking;
  } catch (error) {
    if (!(error instanceof BodyError)) throw error;
  }
}

/** True if a TLS handshake failed because the server speaks plain HTTP. */
function isPlainHttpServer(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause) if (at instanceof TlsHandshakeError) return at.spokeHttp;
  return false;
}

function titleOf({ exec: command, httpGet: action, sleep }: LifecycleHandler): string {
  if (command) return `Exec lifecycle hook ([${(command.command ?? []).join(" ")}])`;
  if (action) return `HTTP lifecycle hook (${action.path ?? ""})`;
  return sleep ? `Sleep lifecycle hook (${sleep.seconds})` : "Lifecycle hook";
}

function errorDetail(error: unknown): string {
  const why = `error: ${messageOf(error)}`;
  return error instanceof CommandError ? `${why}, message: ${goQuote(error.output)}` : why;
}

function podName({ pod: { metadata } }: HookTarget): string {
  return `${metadata.name}_${metadata.namespace}(${metadata.uid})`;
}
