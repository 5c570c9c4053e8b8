import type { ClockAndLog } from "../lib/log.ts";
import { createTrigger } from "../lib/trigger.ts";
import type { ObservedFleet } from "../report/fleet-report.ts";
import type { Message } from "./messages.ts";

/** Receives JSON messages. @see FeedSubscriber */
interface FleetSubscriber {
  send(message: string, about: string): void;
}

/** Delay from a change until it is sent, as changes come in groups, and minimum interval between two updates, milliseconds. */
const [settleMs, intervalMs] = [100, 1_000];

/** Tells subscribers about the machines that other replicas serve: all of them at first, then those that have changed. Nothing is computed
 *  without a change, or without subscribers. */
export function createFleetFeed(fleet: ObservedFleet, { clock, log }: ClockAndLog) {
  const subscribers = new Set<FleetSubscriber>();
  const latest = new Map<string, string>();
  const changed = createTrigger();
  let following: AbortController | undefined;
  let ended: Promise<unknown> = Promise.resolve();

  const publish = (about: string, message: Message) => {
    const text = JSON.stringify(message);
    if (latest.get(about) === text) return;
    latest.set(about, text);
    for (const { send } of subscribers) send(text, about);
  };
  const publishAll = () => {
    const { machines, ...release } = fleet.report();
    const names = machines.map(({ name }) => name);
    const known = new Set(["fleet", ...names.map(machineKey)]);
    for (const about of latest.keys()) if (!known.has(about)) latest.delete(about);
    publish("fleet", { kind: "fleet", ...release, machines: names });
    for (const machine of machines) publish(machineKey(machine.name), { kind: "machine", machine });
  };
  const follow = async (signal: AbortSignal) => {
    const forget = fleet.onChange(changed.fire);
    changed.fire();
    while (!signal.aborted) {
      await changed.fired(signal);
      await clock.sleep(settleMs, signal).catch(() => undefined);
      if (signal.aborted) break;
      try {
        publishAll();
      } catch (err) {
        log.warn({ err }, "cannot show the machines of other replicas on the page; retrying");
        changed.fire();
      }
      await clock.sleep(intervalMs, signal).catch(() => undefined);
    }
    forget();
  };
  const end = () => {
    following?.abort();
    following = undefined;
    latest.clear();
  };
  return {
    /** To be called when a node of this process has come or gone, and so a machine of other replicas. */
    changed: changed.fire,
    /** Sends what is known, then every change. @returns a function that ends the subscription. */
    subscribe(subscriber: FleetSubscriber): () => void {
      for (const [about, text] of latest) subscriber.send(text, about);
      subscribers.add(subscriber);
      if (!following) {
        following = new AbortController();
        ended = Promise.all([ended, follow(following.signal)]);
      }
      return () => {
        if (subscribers.delete(subscriber) && subscribers.size === 0) end();
      };
    },
    /** Ends all subscriptions. @returns once nothing is under way. */
    async end(): Promise<void> {
      subscribers.clear();
      end();
      await ended;
    },
  };
}

function machineKey(name: string): string {
  return `machine ${name}`;
}
