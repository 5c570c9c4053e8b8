import {
  type Server,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
  status,
} from "@grpc/grpc-js";
import { EventType, PodsService, WatchPodsEvent, type WatchPodsRequest } from "../gen/pods.ts";
import { type ConnectionServer, boundedService, createConnectionServer } from "../host/connection-server.ts";
import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import type { TargetBudget } from "../lib/target-budget.ts";
import { createTokenBucket } from "../lib/token-bucket.ts";
import type { Pod, PodStatus } from "../objects.ts";
import type { PodStore } from "../pipeline.ts";
import type { Column } from "../state/records.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { PodEncoder } from "./encode-pod.ts";

export interface PodsServerDeps {
  readonly desired: Pick<PodStore, "list" | "get">;
  readonly status: Pick<Column<PodStatus>, "get" | "onChange">;
  readonly worker: Pick<Column<WorkerView>, "get" | "onChange">;
  readonly encode: PodEncoder;
  readonly measures: PodsApiMeasures;
  readonly budget?: TargetBudget;
  readonly clock: Pick<Clock, "monotonic">;
}

export interface PodsApiMeasures {
  /** A watch was ended because its client does not read. */
  dropped(): void;
}

/** Rate limit of list and get calls: calls per second, and burst; further calls are rejected. (kubelet, apis/pods) */
const perSecond = 100;
const burst = 10;

/** Maximum number of events that wait for a client, in addition to the initial ones; a watch with more is ended. (kubelet, apis/pods) */
const maxWaiting = 100;

/** Maximum number of concurrent watches; further ones are rejected. */
const maxWatches = 50;

/** Serves Pods v1alpha1: lists and watches the node's pods with their latest statuses. Allocates nothing before the first client
 *  connects.
 *  @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/4188-kubelet-pod-readiness-api */
export function createPodsServer(deps: PodsServerDeps): ConnectionServer {
  const { desired, status: statuses, worker, encode, budget, clock } = deps;
  const mayAsk = createTokenBucket(clock, perSecond, burst);
  const answering =
    <Request, Response>(answer: (request: Request) => Response | undefined, missing: (request: Request) => string) =>
    ({ request }: ServerUnaryCall<Request, Response>, reply: sendUnaryData<Response>): void => {
      if (!mayAsk()) return reply({ code: status.RESOURCE_EXHAUSTED, details: "rejected by rate limit" });
      try {
        const response = answer(request);
        if (response === undefined) reply({ code: status.NOT_FOUND, details: missing(request) });
        else reply(null, response);
      } catch (error) {
        reply({ code: status.INTERNAL, details: `failed to marshal pod: ${messageOf(error)}` });
      }
    };
  const current = (pod: Pod): Pod => ({ ...pod, status: statuses.get(pod.metadata.uid) ?? pod.status });
  const all = () => desired.list().toSorted(byUid).map(current);
  const watches = new Set<PodWatch>();
  const unsubscribe = [
    statuses.onChange((uid) => watches.forEach((watch) => watch.changed(uid))),
    worker.onChange((uid) => {
      if (worker.get(uid)?.phase === "finished") watches.forEach((watch) => watch.changed(uid));
    }),
  ];
  const watchPods = (call: ServerWritableStream<WatchPodsRequest, WatchPodsEvent>): void => {
    if (watches.size >= maxWatches)
      return void call.emit("error", { code: status.RESOURCE_EXHAUSTED, details: "too many watches" });
    const watch = createPodWatch({ ...deps, call, current, onEnd: () => watches.delete(watch) });
    watches.add(watch);
    watch.start(all());
  };
  const addServices = (server: Server): void => {
    server.addService(boundedService(PodsService, budget), {
      listPods: answering(
        () => ({ pods: all().map(encode) }),
        () => "",
      ),
      getPod: answering(
        ({ podUID }: { podUID: string }) => {
          const pod = desired.get(podUID);
          return pod && { pod: encode(current(pod)) };
        },
        ({ podUID }) => `pod with UID ${podUID} not found`,
      ),
      watchPods,
    });
  };
  const server = createConnectionServer(addServices, budget);
  return {
    take: server.take,
    close() {
      for (const end of unsubscribe) end();
      server.close();
    },
  };
}

interface PodWatch {
  start(pods: readonly Pod[]): void;
  changed(uid: string): void;
}

interface PodWatchDeps extends Pick<PodsServerDeps, "desired" | "status" | "worker" | "encode" | "measures"> {
  readonly call: ServerWritableStream<WatchPodsRequest, WatchPodsEvent>;
  /** The pod with its latest status. */
  readonly current: (pod: Pod) => Pod;
  readonly onEnd: () => void;
}

/** One client's watch. A pod is ADDED at its first event, and DELETED when its worker has finished or its record ends. */
function createPodWatch(deps: PodWatchDeps): PodWatch {
  const { desired, status: statuses, worker, encode, measures, call, current, onEnd } = deps;
  /** Pods that the client knows, in the state in which they are reported as deleted. */
  const known = new Map<string, Pod>();
  const waiting: (() => WatchPodsEvent)[] = [];
  let limit = maxWaiting;
  let isBlocked = false;
  let hasEnded = false;
  const end = (error: { code: status; details: string }) => {
    if (hasEnded) return;
    ended();
    call.emit("error", error);
  };
  const ended = () => {
    hasEnded = true;
    waiting.length = 0;
    onEnd();
  };
  const flush = () => {
    while (!isBlocked) {
      const next = waiting.shift();
      if (!next) return;
      try {
        isBlocked = !call.write(next());
      } catch (error) {
        end({ code: status.INTERNAL, details: `error marshalling watch event pod: ${messageOf(error)}` });
      }
    }
  };
  const send = (type: EventType, pod: Pod | undefined) => {
    waiting.push(() => WatchPodsEvent.fromPartial({ type, ...(pod && { pod: encode(pod) }) }));
    flush();
  };
  call.on("drain", () => {
    isBlocked = false;
    flush();
  });
  call.on("error", ended);
  call.on("cancelled", ended);
  call.on("close", ended);
  return {
    start(pods) {
      limit += pods.length;
      for (const pod of pods) known.set(pod.metadata.uid, pod);
      for (const pod of pods) send(EventType.ADDED, pod);
      send(EventType.INITIAL_SYNC_COMPLETE, undefined);
    },
    changed(uid) {
      const before = known.get(uid);
      const pod = desired.get(uid);
      const isGone = statuses.get(uid) === undefined || worker.get(uid)?.phase === "finished";
      if (isGone ? !before : !pod) return;
      if (waiting.length >= limit) {
        measures.dropped();
        end({ code: status.RESOURCE_EXHAUSTED, details: "watch client channel closed" });
        return;
      }
      if (isGone) known.delete(uid);
      else if (pod) known.set(uid, pod);
      if (isGone && before) send(EventType.DELETED, nameOnly(before));
      else send(before ? EventType.MODIFIED : EventType.ADDED, pod && current(pod));
    },
  };
}

function nameOnly({ metadata: { name, namespace, uid } }: Pod): Pod {
  return { metadata: { name, namespace, uid }, spec: { containers: [] } };
}

function byUid(a: Pod, b: Pod): number {
  return a.metadata.uid < b.metadata.uid ? -1 : 1;
}
