import type { Clock } from "../lib/clock.ts";
import { hasCode } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";
import { pause } from "../lib/pause.ts";
import { onAbort } from "../lib/runnables.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { Runtime, RuntimeEvent } from "../seams/runtime.ts";
import type { Sends } from "../state/signals.ts";
import { type PlegInspector, type InspectorDeps, createInspector } from "./inspector.ts";
import { type PodListing, listPods } from "./observe.ts";

/** Pauses between relists, milliseconds: the kubelet's 1 s; 30 s while events are received. */
const relistMs = 1_000;
/** Pause before a failed relist is retried, milliseconds: pods waiting for the runtime continue as soon as it is back. */
const failedRelistDelayMs = 500;
const relistWithEventsMs = 30_000;
const unhealthyAfterMs = 180_000;
/** Time without a response after which the runtime counts as down and pods are not synced, milliseconds. */
const downAfterMs = 30_000;
/** Timeout of a list call, milliseconds, doubled with each failure, so that a lost response is retried. The runtime client has its own
 *  deadline. */
const listTimeoutMs = 15_000;
/** Delay of a relist after an event of an unknown container, milliseconds; skipped if a worker's inspection finds it first. Creating a
 *  sandbox may take this long. */
const unknownEventDelayMs = 1_000;

export interface PlegDeps extends InspectorDeps {
  readonly runtime: InspectorDeps["runtime"] & Pick<Runtime, "events">;
  /** `retry` is sent when the runtime responds again. */
  readonly signals: Sends<"wakeWorker" | "retryFailedPods">;
}

export type Pleg = ReturnType<typeof createPleg>;

/** Maximum number of concurrent inspections in a relist. When graftlet starts on a full node, all pods are inspected; other requests
 *  to the runtime, such as for its status, must not wait for all of these. */
const maxParallelInspections = 20;

/** State shared by the relist and event loops. */
interface RelistState {
  /** True while events are received, so that relists can be rare. */
  listening: boolean;
  /** True if the last relist failed. */
  down: boolean;
  /** Triggers a relist when resolved. */
  due: PromiseWithResolvers<void>;
}

/** The pod lifecycle event generator. Events only trigger inspections, the runtime's status is authoritative, and the relist catches
 *  missed events. @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/3386-kubelet-evented-pleg */
export function createPleg(deps: PlegDeps) {
  const stop = new AbortController();
  const relistState: RelistState = { listening: false, down: false, due: Promise.withResolvers<void>() };
  const onFailedInspection = createRelistRequest(deps.clock, relistState);
  const inspector = createInspector({ ...deps, onFailedInspection }, stop.signal);
  const first = Promise.withResolvers<void>();
  let lastRelist = deps.clock.monotonic();
  let listed = false;
  const onRelist = () => {
    lastRelist = deps.clock.monotonic();
    if (!listed) deps.log.info({ pods: deps.podCache.list().length }, "listed the runtime's pods");
    listed = true;
    first.resolve();
  };
  return {
    name: "pleg",
    inspect: inspector.inspect,
    needsInspection: inspector.needsInspection,
    /** Records another actor's observation of a pod, so that its events are attributed to it. */
    recordObservation: inspector.recordObservation,
    /** Undefined while relists succeed; otherwise the kubelet's message for the node's Ready condition. */
    unhealthy(): string | undefined {
      const silentMs = deps.clock.monotonic() - lastRelist;
      if (silentMs < unhealthyAfterMs) return undefined;
      return `PLEG is not healthy: pleg was last seen active ${goDuration(silentMs)} ago; threshold is 3m0s`;
    },
    /** True if no pods have been synced for `timeoutMs`: a kubelet's sync loop stops 30 s after the runtime last responded. A runtime that has
     *  never responded does not count. */
    isStalled: (timeoutMs: number): boolean => listed && deps.clock.monotonic() - lastRelist > downAfterMs + timeoutMs,
    /** Resolves once the runtime has been listed for the first time. */
    ready: (signal: AbortSignal): Promise<void> => Promise.race([first.promise, onAbort(signal)]),
    async run(signal: AbortSignal) {
      signal.addEventListener("abort", () => stop.abort(signal.reason), { once: true });
      await Promise.all([
        relistForever(deps, inspector, relistState, onRelist, signal),
        followEvents(deps, inspector, relistState, signal),
      ]);
    },
  };
}

async function relistForever(
  deps: PlegDeps,
  inspector: PlegInspector,
  state: RelistState,
  onRelist: () => void,
  signal: AbortSignal,
): Promise<void> {
  const { clock, log, measures } = deps;
  let failures = 0;
  let last: number | undefined;
  while (!signal.aborted) {
    state.due = Promise.withResolvers<void>();
    const began = clock.monotonic();
    measures.relistStarted(last === undefined ? undefined : began - last);
    try {
      await relist(deps, inspector, listTimeoutMs * 2 ** failures, signal);
      onRelist();
      measures.relisted(clock.monotonic() - began);
      last = began;
      if (failures > 0) {
        log.info({}, "runtime responds again");
        deps.signals.retryFailedPods.send();
      }
      failures = 0;
    } catch (error) {
      if (signal.aborted) return;
      if (failures === 0) log.warn({ err: error }, "cannot list the runtime's pods; retrying");
      failures += 1;
    }
    state.down = failures > 0;
    const pauseMs = state.down ? failedRelistDelayMs : state.listening ? relistWithEventsMs : relistMs;
    // While the runtime is down, no trigger makes a relist due earlier.
    if (state.down) await clock.sleep(pauseMs, signal).catch(() => undefined);
    else await pause(clock, pauseMs, state.due.promise, signal);
  }
}

/** Creates a function that requests a relist a kubelet's period later, one for all requests until then: no event may announce the pod
 *  again, and an orphan whose inspection has failed is unknown until a relist finds it. */
function createRelistRequest(clock: Clock, state: RelistState): () => void {
  let requested = false;
  return () => {
    if (requested) return;
    requested = true;
    clock.after(relistMs, () => {
      requested = false;
      state.due.resolve();
    });
  };
}

/** Lists all pods and inspects those that differ from the cache; a pod that is no longer listed is inspected a last time. */
async function relist(deps: PlegDeps, inspector: PlegInspector, listMs: number, signal: AbortSignal): Promise<void> {
  const listings = new Map(await listPods(deps, undefined, deps.clock.within(listMs, signal)));
  for (const { uid } of deps.podCache.list()) {
    const gone: PodListing = { uid, sandboxes: [], containers: [], listedAt: deps.clock.monotonic() };
    if (!listings.has(uid)) listings.set(uid, gone);
  }
  const semaphore = createSemaphore(maxParallelInspections);
  await Promise.all(
    [...listings.values()].map((listing) => semaphore(() => inspector.inspectIfChanged(listing, signal))),
  );
  inspector.completeRelist(listings);
}

async function followEvents(
  { runtime, measures, clock, log, signals }: PlegDeps,
  inspector: PlegInspector,
  state: RelistState,
  signal: AbortSignal,
): Promise<void> {
  let broke = false;
  const onListening = () => {
    // Unless a relist has failed, no relist will report that the runtime is back.
    if (broke && !state.down) signals.retryFailedPods.send();
    broke = false;
  };
  while (runtime.events && !signal.aborted) {
    try {
      for await (const event of runtime.events(signal)) {
        if (event.kind === "listening") {
          measures.eventStreamOpened();
          onListening();
        } else if (event.at !== undefined) measures.eventArrived(Math.max(0, clock.now() - event.at));
        onEvent(clock, inspector, state, event);
      }
    } catch (error) {
      if (hasCode(error, "unimplemented")) return;
      if (!signal.aborted) {
        measures.eventStreamFailed();
        log.debug({ err: error }, "runtime event stream ended; relisting every second until it is back");
      }
    }
    broke = true;
    state.listening = false;
    state.due.resolve();
    await clock.sleep(relistMs, signal).catch(() => undefined);
  }
}

function onEvent(clock: Clock, inspector: PlegInspector, state: RelistState, event: RuntimeEvent): void {
  if (event.kind === "listening") {
    state.listening = true;
    return state.due.resolve();
  }
  const id = event.containerId ?? event.sandboxId;
  const known = id === undefined ? undefined : inspector.podUidOf(id);
  if (event.removed && known === undefined) return;
  const uid = event.podUid ?? known;
  if (uid !== undefined) return event.exited ? inspector.inspectNow(uid, id) : inspector.scheduleInspect(uid);
  if (id === undefined) return;
  if (event.exited) inspector.expectExit(id);
  clock.after(unknownEventDelayMs, () => void (inspector.podUidOf(id) ?? state.due.resolve()));
}
