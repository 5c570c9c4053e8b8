import { ApiError } from "../api/api-error.ts";
import type { ApiClient } from "../api/client.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { ValuePair } from "../state/values.ts";
import type { Sends } from "../state/signals.ts";
import type { ReachableState } from "./conditions.ts";

export interface ReachabilityDeps extends ClockAndLog {
  /** A client that may get nodes/proxy of this node: a Pod's service account. */
  readonly client: Pick<ApiClient, "text">;
  readonly nodeName: string;
  /** Name of the certificate request that is waiting for approval. */
  readonly waiting: () => string | undefined;
  /** API servers that have a tunnel to this node. */
  readonly tunnels: () => readonly string[];
  /** Writer of the self-test's result. */
  readonly reachable: ValuePair<ReachableState>["writer"];
  readonly signals: Sends<"nodeChanged">;
}

/** The condition's type. */
export const reachableType = "KubeletReachable";
const type = reachableType;
const checkIntervalMs = 5 * 60_000;
/** Interval while the check fails: short, so that the operator soon sees the effect of a fix. */
const failedCheckIntervalMs = 15_000;
/** Interval while the result is unknown, for example before registration, and after a missing certificate was issued. */
const unknownCheckIntervalMs = 2_000;
const requestTimeoutMs = 30_000;
/** Time after the start in which a missing route is not reported, milliseconds: the node's Service routes to a new Pod only once the Pod
 *  is ready and kube-proxy has seen it. */
const startupGraceMs = 20_000;

/** Calls the kubelet API through the API server, at the start and every 5 minutes, and reports why logs and exec would fail. */
export function createReachability(deps: ReachabilityDeps): Runnable {
  const { client, nodeName, reachable, clock, log } = deps;
  const startedAt = clock.monotonic();
  const check = async (signal: AbortSignal): Promise<ReachableState | undefined> => {
    const path = `/api/v1/nodes/${encodeURIComponent(nodeName)}/proxy/healthz`;
    try {
      await client.text(path, { signal: clock.within(requestTimeoutMs, signal) });
      const tunnels = deps.tunnels();
      const by = tunnels.length > 0 ? ` through a tunnel (from ${tunnels.join(", ")})` : "";
      const message = `the API server reaches the kubelet API${by}`;
      return { type, status: "True", reason: "KubeletReachable", message };
    } catch (error) {
      if (signal.aborted) return reachable.get();
      const verdict = failedCheckState(error, deps);
      const isEarly = reachable.get() === undefined && clock.monotonic() - startedAt < startupGraceMs;
      return isEarly && verdict && routeReasons.includes(verdict.reason) ? undefined : verdict;
    }
  };
  return {
    name: "reachability",
    async run(signal) {
      while (!signal.aborted) {
        const before = reachable.get();
        const known = await check(signal);
        reachable.set(known);
        if (
          known &&
          (known.status !== before?.status ||
            known.reason !== before.reason ||
            (known.status === "True" && known.message !== before.message))
        ) {
          if (known.status !== "True") log.warn({ reason: known.reason }, known.message);
          deps.signals.nodeChanged.send();
        }
        const pauseMs =
          known === undefined
            ? unknownCheckIntervalMs
            : known.status === "True"
              ? checkIntervalMs
              : failedCheckIntervalMs;
        await pause(pauseMs, deps, signal);
      }
    },
  };
}

/** Reasons of failures that may clear up by themselves shortly after the start, once the route to the node works. */
const routeReasons: readonly ReachableState["reason"][] = ["NoRoute", "Timeout"];

/** Waits `ms` milliseconds, or until the pending certificate request is approved. */
async function pause(ms: number, { waiting, clock }: ReachabilityDeps, signal: AbortSignal): Promise<void> {
  const until = clock.monotonic() + ms;
  const request = waiting();
  for (let left = ms; left > 0 && !signal.aborted; left = until - clock.monotonic()) {
    if (request !== undefined && waiting() !== request) return;
    await clock.sleep(request === undefined ? left : Math.min(left, unknownCheckIntervalMs), signal).catch(() => {});
  }
}

/** Result of a failed call, with the remedy; undefined if the API server itself is unreachable, or does not have the Node yet. */
function failedCheckState(error: unknown, { nodeName, waiting }: ReachabilityDeps): ReachableState | undefined {
  const request = waiting();
  const no = (reason: ReachableState["reason"], message: string): ReachableState => ({
    type,
    status: "False",
    reason,
    message,
  });
  if (request !== undefined)
    return no(
      "CertificateNotApproved",
      `the kubelet API has no certificate yet, so logs and exec fail: kubectl certificate approve ${request}`,
    );
  const text = messageOf(error);
  if (!(error instanceof ApiError)) {
    if (hasCode(error, "unavailable")) return undefined;
    return no(
      "Timeout",
      `the API server got no response from the kubelet API (${text}), so logs and exec fail: ${routes}`,
    );
  }
  if (error.reason === "NotFound") return undefined;
  if (error.status === 401)
    return no(
      "ClientCertificateUntrusted",
      "the kubelet API does not trust the API server's client certificate, so logs and exec fail: set authentication.x509.clientCAFile, or let the node read the ConfigMap kube-system/extension-apiserver-authentication",
    );
  if (error.status === 403)
    return {
      type,
      status: "Unknown",
      reason: "NotPermitted",
      message: `cannot check whether logs and exec work: allow graftlet's account to get nodes/proxy of ${nodeName}, and the API server's user to access nodes/* (${text})`,
    };
  return no("NoRoute", `the API server cannot reach the kubelet API (${text}), so logs and exec fail: ${routes}`);
}

const routes =
  "make sure that the control plane has a route to the node's InternalIP and port; with an egress tunnel (Konnectivity; k3s and RKE2: egressTunnel), the tunnel must lead there";
