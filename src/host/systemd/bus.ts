import type { Clock } from "../../lib/clock.ts";
import { connectMessageBus } from "./message-bus.ts";
import type { Wire } from "./bus-connection.ts";

/** A call of a method of an object of systemd's. */
export interface BusCall {
  readonly member: string;
  /** Types of the arguments in D-Bus's words. */
  readonly signature?: string;
  readonly body?: readonly unknown[];
  /** Other than the manager's. */
  readonly of?: string;
}

/** The end of a job of systemd's: the object it was, and `done` or how else it ended. */
export interface JobEnd {
  readonly job: string;
  readonly result: string;
}

/** A connection to systemd by a bus. */
export interface SystemdBus {
  /** @throws not_found (no such unit), already_exists, permission_denied, invalid_argument, deadline_exceeded, unavailable
   *  (the connection is lost); the signal's reason. */
  call(what: BusCall, signal: AbortSignal): Promise<unknown>;
  /** Hears of every job's end. @returns what ends this. */
  onJobEnd(listener: (end: JobEnd) => void): () => void;
  /** Aborts, with unavailable, once nothing can be asked any more. */
  readonly lost: AbortSignal;
  close(): void;
}

const destination = "org.freedesktop.systemd1";
/** systemd's own object. */
export const systemdManager = {
  destination,
  path: "/org/freedesktop/systemd1",
  interface: `${destination}.Manager`,
};

/** Jobs of systemd's, and the longest word for their end: `dependency`, `collected`. */
const jobPath = /^\/org\/freedesktop\/systemd1\/job\/\d{1,20}$/;
const resultWord = /^[a-z-]{1,32}$/;

/** Logs in on a bus, and asks systemd to tell of its jobs.
 *  @throws permission_denied when the bus does not let graftlet's user in; unavailable, deadline_exceeded. */
export async function connectBus(wire: Wire, clock: Clock, signal: AbortSignal): Promise<SystemdBus> {
  const bus = await connectMessageBus(wire, clock, signal);
  const listeners = new Set<(end: JobEnd) => void>();
  const systemd: SystemdBus = {
    call: ({ of = systemdManager.interface, ...what }, stop) =>
      bus.call({ ...systemdManager, interface: of, ...what }, stop),
    onJobEnd(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    lost: bus.lost,
    close: bus.close,
  };
  const { path, interface: of } = systemdManager;
  const removed = { sender: destination, path, interface: of, member: "JobRemoved" };
  try {
    await bus.hear(
      removed,
      ([, job, , result]) => {
        const end = { job: String(job), result: String(result) };
        if (!jobPath.test(end.job) || !resultWord.test(end.result)) return;
        for (const listener of listeners) listener(end);
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
