import type { Clock } from "../../lib/clock.ts";
import { connectMessageBus } from "./message-bus.ts";
import type { BusStreams } from "./bus-connection.ts";
import { createSignal } from "../../lib/signal.ts";

/** A method call of one of systemd's objects. */
export interface BusCall {
  readonly member: string;
  /** D-Bus signature of the arguments. */
  readonly signature?: string;
  readonly body?: readonly unknown[];
  /** Interface; default: the manager's. */
  readonly interfaceName?: string;
}

/** The end of a systemd job: its object path, and `done` or another result. */
export interface JobEnd {
  readonly job: string;
  readonly result: string;
}

/** A connection to systemd over a bus. */
export interface SystemdBus {
  /** @throws not_found (no such unit), already_exists, permission_denied, invalid_argument, deadline_exceeded, unavailable
   *  (the connection is lost); the signal's reason. */
  call(what: BusCall, signal: AbortSignal): Promise<unknown>;
  /** Subscribes to the ends of all jobs. @returns a function that unsubscribes. */
  onJobEnd(listener: (end: JobEnd) => void): () => void;
  /** Aborts, with unavailable, once the connection is lost. */
  readonly lost: AbortSignal;
  close(): void;
}

const destination = "org.freedesktop.systemd1";
/** systemd's manager object. */
export const systemdManager = {
  destination,
  path: "/org/freedesktop/systemd1",
  interface: `${destination}.Manager`,
};

/** Object paths of systemd jobs, and their results such as `dependency` or `collected`. */
const jobPath = /^\/org\/freedesktop\/systemd1\/job\/\d{1,20}$/;
const resultWord = /^[a-z-]{1,32}$/;

/** Connects to a bus and subscribes to systemd's jobs. @throws permission_denied if the bus rejects graftlet's user;
 *  unavailable, deadline_exceeded. */
export async function connectBus(wire: BusStreams, clock: Clock, signal: AbortSignal): Promise<SystemdBus> {
  const bus = await connectMessageBus(wire, clock, signal);
  const jobEnded = createSignal<[end: JobEnd]>();
  const systemd: SystemdBus = {
    call: ({ interfaceName = systemdManager.interface, ...what }, stop) =>
      bus.call({ ...systemdManager, interface: interfaceName, ...what }, stop),
    onJobEnd: jobEnded.subscribe,
    lost: bus.lost,
    close: bus.close,
  };
  const { path, interface: of } = systemdManager;
  const removed = { sender: destination, path, interface: of, member: "JobRemoved" };
  try {
    await bus.subscribe(
      removed,
      ([, job, , result]) => {
        const end = { job: String(job), result: String(result) };
        if (jobPath.test(end.job) && resultWord.test(end.result)) jobEnded.send(end);
      },
      signal,
    );
    await systemd.call({ member: "Subscribe" }, signal);
    return systemd;
  } catch (error) {
    bus.close();
    throw error;
  }
}
