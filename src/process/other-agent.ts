import type { Clock } from "../lib/clock.ts";
import type { Host } from "../seams/host.ts";
import { type Sharing, TargetError } from "../seams/provider.ts";
import { instanceHeader, serverName } from "../server/healthz.ts";

const kubeletHealthPort = 10_248;
/** A listener that does not respond within this time, milliseconds, is not a kubelet. */
const responseTimeoutMs = 2_000;

/** Error for another agent on the target. @param sentence names the agent and the remedy. */
export function runtimeInUse(sentence: string, cause?: unknown): TargetError {
  return new TargetError("RuntimeInUse", "failed_precondition", sentence, cause === undefined ? {} : { cause });
}

export interface OtherAgentDeps {
  readonly host: Pick<Host, "dial">;
  readonly sharing: Sharing;
  /** ID of this process, to recognize its own health endpoint. */
  readonly instance?: string;
  readonly clock: Clock;
}

type Agent = "none" | "kubelet" | "sharing graftlet";

/** Checks that neither a kubelet nor another graftlet responds on the target. Nodes that share their runtime do not touch each other's
 *  pods, so they may coexist. @throws TargetError RuntimeInUse. */
export async function refuseOtherAgent(deps: OtherAgentDeps, signal: AbortSignal): Promise<void> {
  const { host, sharing, instance, clock } = deps;
  const found = await kubeletOn(host, instance, clock.within(responseTimeoutMs, signal));
  if (found === "none" || (found === "sharing graftlet" && sharing === "shared")) return;
  throw runtimeInUse(
    `another agent answers on the target's port ${kubeletHealthPort} (RuntimeInUse): stop the kubelet or graftlet that runs there; two agents on one runtime delete each other's pods`,
  );
}

/** Returns the agent that responds on the kubelet's health port, if any. */
async function kubeletOn(host: Pick<Host, "dial">, instance: string | undefined, signal: AbortSignal): Promise<Agent> {
  const connection = await host.dial({ host: "127.0.0.1", port: kubeletHealthPort }, signal).catch(() => undefined);
  if (!connection) return "none";
  try {
    connection.setEncoding("utf8");
    connection.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const { promise, resolve } = Promise.withResolvers<string>();
    connection.once("data", (text: string) => resolve(text));
    connection.once("error", () => resolve(""));
    connection.once("end", () => resolve(""));
    signal.addEventListener("abort", () => resolve(""), { once: true });
    return agentIn((await promise).toLowerCase(), instance);
  } finally {
    connection.destroy();
  }
}

/** Identifies an agent by its response. @param answer HTTP response in lower case. */
function agentIn(answer: string, instance: string | undefined): Agent {
  const says = (name: string, value: string) => answer.includes(`\r\n${name}: ${value}\r\n`.toLowerCase());
  if (!answer.startsWith("http/1.") || says("Server", serverName(undefined))) return "none";
  if (instance !== undefined && says(instanceHeader, instance)) return "none";
  return says("Server", serverName("shared")) ? "sharing graftlet" : "kubelet";
}
