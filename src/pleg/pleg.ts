import { ContainerState, PodSandboxState } from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import { hasCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { Mailbox } from "../lib/mailbox.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import type { PodInspector, RuntimePod, Waker } from "../pipeline.ts";
import type { RuntimeEvent, Runtime } from "../seams/runtime.ts";
import { type ObserveDeps, type PodListing, listPods, listingFingerprint, observePod, podFingerprint } from "./observe.ts";
import { createPodCache } from "./pod-cache.ts";

/** Relist periods and patience, milliseconds: the kubelet's 1 s after the last one ended; 30 s while events flow. */
const relistMs = 1_000;
const relistWithEventsMs = 30_000;
const unhealthyAfterMs = 180_000;
/** How long after an event of an unknown container a relist follows, unless a worker's own look explains it first. */
const strangerMs = 250;
/** containerd announces an exit some 25 ms before its status shows it: looks after an exit event, until they agree. */
const lookAgainMs = [10, 20, 40, 80, 160, 320, 640];

export interface PlegDeps extends ObserveDeps {
  readonly runtime: Pick<Runtime, "events" | "listPodSandbox" | "listContainers" | "podSandboxStatus" | "containerStatus"> & ObserveDeps["runtime"];
  readonly clock: Clock;
  readonly log: Logger;
  readonly waker: Waker;
}

export interface Pleg extends Service, PodInspector {
  readonly cache: ReturnType<typeof createPodCache>["reader"];
  /** Undefined while relists come through; else the kubelet's sentence for the node's Ready condition. */
  unhealthy(): string | undefined;
  /** Resolves once the runtime has been listed for the first time. */
  ready(signal: AbortSignal): Promise<void>;
}

/** The pod lifecycle event generator: keeps the pod cache true and wakes the workers of pods that changed.
 *  Events say where to look, the runtime's answer says what is, and the relist finds what events missed. */
export function createPleg(given: PlegDeps): Pleg {
  const { runtime, clock, log, waker } = given;
  const { reader, writer } = createPodCache();
  const deps: PlegDeps = { ...given, known: reader.get };
  const podOfId = new Map<string, string>();
  const looks = new Map<string, Mailbox<ReadonlySet<string>>>();
  const retry = new Set<string>();
  /** Ended already when nobody had looked at them: what a worker has just started may be over before it looks. */
  const strangers = new Set<string>();
  const first = Promise.withResolvers<void>();
  let relistDue = Promise.withResolvers<void>();
  let lastRelist = clock.monotonic();
  let listening = false;
  let stopping: AbortSignal = AbortSignal.abort();

  const keep = (pod: RuntimePod) => {
    for (const { id } of [...(reader.get(pod.uid)?.sandboxes ?? []), ...(reader.get(pod.uid)?.containers ?? [])]) podOfId.delete(id);
    for (const { id } of [...pod.sandboxes, ...pod.containers]) podOfId.set(id, pod.uid);
    writer.put(pod);
    for (const id of strangers) if (podOfId.get(id) === pod.uid) lookSoon(pod.uid, id);
  };

  const inspect = async (uid: string, signal: AbortSignal): Promise<RuntimePod> => {
    const listing = (await listPods(deps, uid, signal)).get(uid);
    const pod = await observePod(deps, listing ?? { uid, sandboxes: [], containers: [], listedAt: clock.monotonic() }, signal);
    keep(pod);
    return pod;
  };

  /** Looks at one pod and wakes its worker when it differs from what the cache showed. */
  const look = async (listing: PodListing, signal: AbortSignal) => {
    const before = reader.get(listing.uid);
    const after = await observePod(deps, listing, signal);
    keep(after);
    retry.delete(listing.uid);
    if (!before || podFingerprint(before) !== podFingerprint(after)) waker.wake(listing.uid, "pleg");
  };

  const relist = async (signal: AbortSignal) => {
    const listings = new Map(await listPods(deps, undefined, signal));
    for (const known of reader.list()) {
      const gone: PodListing = { uid: known.uid, sandboxes: [], containers: [], listedAt: clock.monotonic() };
      if (!listings.has(known.uid)) listings.set(known.uid, gone);
    }
    await Promise.all(
      [...listings.values()].map(async (listing) => {
        const known = reader.get(listing.uid);
        const same = known && podFingerprint(known) === listingFingerprint(listing) && !retry.has(listing.uid);
        if (same || (known && known.observedAt > listing.listedAt)) return;
        try {
          await look(listing, signal);
        } catch (error) {
          retry.add(listing.uid);
          if (!signal.aborted) log.warn({ err: error, uid: listing.uid }, "pod could not be inspected, will look again");
        }
      }),
    );
    strangers.clear();
    lastRelist = clock.monotonic();
    first.resolve();
  };

  /** One pod's looks are serial. @param exited the container whose end was announced. */
  const lookSoon = (uid: string, exited: string | undefined) => {
    if (exited !== undefined) strangers.delete(exited);
    const box = looks.get(uid) ?? new Mailbox<ReadonlySet<string>>((ids) => lookUntilEnded(uid, ids), (error) => onLookError(uid, error));
    looks.set(uid, box);
    box.put(new Set([...(box.waiting ?? []), ...(exited === undefined ? [] : [exited])]));
    void box.idle().then(() => void (box.busy || looks.delete(uid)));
  };
  /** Looks again while the runtime shows as running what it has announced the end of. */
  const lookUntilEnded = async (uid: string, ids: ReadonlySet<string>) => {
    for (const pause of [...lookAgainMs, undefined]) {
      const listing = (await listPods(deps, uid, stopping)).get(uid);
      await look(listing ?? { uid, sandboxes: [], containers: [], listedAt: clock.monotonic() }, stopping);
      if (pause === undefined || !isAnyAlive(reader.get(uid), ids)) return;
      await clock.sleep(pause, stopping);
    }
  };
  const onLookError = (uid: string, error: unknown) => {
    retry.add(uid);
    if (!stopping.aborted) log.debug({ err: error, uid }, "look after an event failed, the relist follows");
  };

  const onEvent = (event: RuntimeEvent) => {
    if (event.is === "listening") {
      listening = true;
      return relistDue.resolve();
    }
    const id = event.containerId ?? event.sandboxId;
    const uid = event.podUid ?? (id === undefined ? undefined : podOfId.get(id));
    if (uid !== undefined) return lookSoon(uid, event.exited ? id : undefined);
    if (id === undefined) return;
    if (event.exited) strangers.add(id);
    clock.after(strangerMs, () => void (podOfId.has(id) || relistDue.resolve()));
  };

  const follow = async (signal: AbortSignal) => {
    while (runtime.events && !signal.aborted) {
      try {
        for await (const event of runtime.events(signal)) onEvent(event);
      } catch (error) {
        if (hasCode(error, "unimplemented")) return;
        if (!signal.aborted) log.debug({ err: error }, "runtime events broke off, relisting every second meanwhile");
      }
      listening = false;
      relistDue.resolve();
      await clock.sleep(relistMs, signal).catch(() => undefined);
    }
  };

  const relistForever = async (signal: AbortSignal) => {
    let down = false;
    while (!signal.aborted) {
      relistDue = Promise.withResolvers<void>();
      try {
        await relist(signal);
        if (down) log.info({}, "runtime answers again");
        down = false;
      } catch (error) {
        if (signal.aborted) return;
        if (!down) log.warn({ err: error }, "runtime cannot be listed, will keep trying");
        down = true;
      }
      const wait = new AbortController();
      const pause = clock.sleep(listening && !down ? relistWithEventsMs : relistMs, AbortSignal.any([signal, wait.signal])).catch(() => undefined);
      await Promise.race([pause, relistDue.promise.then(() => (down ? pause : undefined))]);
      wait.abort();
    }
  };

  return {
    name: "pleg",
    cache: reader,
    inspect,
    unhealthy() {
      const silentMs = clock.monotonic() - lastRelist;
      if (silentMs < unhealthyAfterMs) return undefined;
      return `PLEG is not healthy: pleg was last seen active ${Math.round(silentMs / 1000)}s ago; threshold is 3m0s`;
    },
    ready: (signal) => Promise.race([first.promise, onAbort(signal)]),
    async run(signal) {
      stopping = signal;
      await Promise.all([relistForever(signal), follow(signal)]);
    },
  };
}

/** True when any of the containers or sandboxes of these IDs is shown as running. */
function isAnyAlive(pod: RuntimePod | undefined, ids: ReadonlySet<string>): boolean {
  const containers = pod?.containers.some(({ id, state }) => ids.has(id) && state === ContainerState.CONTAINER_RUNNING);
  return containers || (pod?.sandboxes.some(({ id, state }) => ids.has(id) && state === PodSandboxState.SANDBOX_READY) ?? false);
}
