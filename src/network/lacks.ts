import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { paced } from "../lib/paced.ts";
import type { HostFs } from "../seams/host.ts";
import { createOverlapCheck } from "./overlap.ts";
import type { Redirections } from "./rules.ts";

/** What a way may lack while it stands: reasons of events. */
export type WayLack = "ConnectionsNotCarried" | "DatagramsNotCarried" | "PodNetworkOverlaps" | "ServicesNotCarried";
export type TellLack = (reason: WayLack, message: string) => void;

export interface LackDeps {
  readonly host: { readonly fs: Pick<HostFs, "readFile"> };
  readonly tell: TellLack;
  readonly clock: Pick<Clock, "monotonic" | "after">;
  readonly log: Logger;
}

/** Pods that have as many connections as they may are told of no more often than this, milliseconds. */
const fullEveryMs = 60_000;

/** Tells each lack once until it is another, or has been none. */
export function createNews(tell: TellLack): (reason: WayLack, message: string | undefined) => void {
  const said = new Map<WayLack, string | undefined>();
  return (reason, message) => {
    if (message !== undefined && message !== said.get(reason)) tell(reason, message);
    said.set(reason, message);
  };
}

/** Tells what a way lacks, each thing once until it is another. */
export function createLacks({ host, tell, clock, log }: LackDeps) {
  const news = createNews(tell);
  const compare = createOverlapCheck(host.fs);
  let fullPod = "";
  const tellFull = paced(() => tell("ConnectionsNotCarried", unheld(fullPod)), fullEveryMs, clock);
  return {
    /** A pod has as many connections open as it may: further ones are refused. @param pod its address. */
    connections(pod: string): void {
      fullPod = pod;
      tellFull();
    },
    /** Compares the destinations of datagrams that are wanted with those that have a port on the target. */
    datagrams: (wanted: readonly string[], ports: Redirections["udp"]) =>
      news("DatagramsNotCarried", uncarried(wanted, ports)),
    /** Compares the pods' network with the cluster's addresses, in the background. */
    addresses(pods: readonly string[], cluster: readonly string[], signal: AbortSignal): void {
      void compare(pods, cluster, signal).then(
        (overlap) => news("PodNetworkOverlaps", overlap),
        (err: unknown) => log.debug({ err }, "the pods' network was not compared with the cluster's"),
      );
    },
  };
}

/** The sentence of a pod whose connections are refused. */
function unheld(pod: string): string {
  return `further connections of the pod ${pod} to Services are refused: it has its share of those that the node carries open. Have the pod close idle connections`;
}

/** The sentence of destinations for which the target has no port left. */
function uncarried(wanted: readonly string[], ports: Redirections["udp"]): string | undefined {
  const carried = new Set(ports.map(([to]) => to));
  const [first, ...others] = wanted.filter((to) => !carried.has(to));
  if (first === undefined) return undefined;
  const more = others.length > 0 ? ` and of ${others.length} destinations more` : "";
  return `UDP of ${first}${more} is not carried: the target has no port from 600 to 1023 left for it. Leave Services out with serviceNamespaces`;
}
