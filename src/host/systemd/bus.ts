import type { DBusError } from "dbus-native";
import type { Clock } from "../../lib/clock.ts";
import { CodedError, type ErrorCode, abortError, messageOf } from "../../lib/errors.ts";
import { type Wire, asPeer } from "./peer-login.ts";

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

const systemd = "org.freedesktop.systemd1";
const managerPath = "/org/freedesktop/systemd1";
const manager = `${systemd}.Manager`;
/** A call's answer is waited for so long, milliseconds. */
const answerWithinMs = 25_000;

/** Logs in on a bus, and asks systemd to tell of its jobs.
 *  @throws permission_denied when the bus does not let graftlet's user in; unavailable, deadline_exceeded. */
export async function connectBus(wire: Wire, clock: Clock, signal: AbortSignal): Promise<SystemdBus> {
  // Loading it takes time, and few nodes need it.
  const { createClient } = await import("dbus-native");
  const stream = asPeer(wire);
  // Its own greeting would throw past everybody when it gets no answer.
  const client = createClient({ stream, authMethods: ["EXTERNAL"], direct: true, timeout: 0 });
  const { connection } = client;
  connection.on("error", () => void stream.destroy());
  connection.on("handlerError", () => void stream.destroy());
  const lost = new AbortController();
  stream.once("close", () => lost.abort(new CodedError("unavailable", "the connection to systemd is lost")));
  const listeners = new Set<(end: JobEnd) => void>();
  connection.on("message", ({ interface: from, member, body }) => {
    if (from !== manager || member !== "JobRemoved") return;
    const [, job, , result] = body ?? [];
    for (const listener of listeners) listener({ job: String(job), result: String(result) });
  });
  const invoke = async (message: Parameters<typeof client.invoke>[0], stop: AbortSignal): Promise<unknown> => {
    const within = clock.within(answerWithinMs, stop);
    try {
      return await client.invoke<unknown>(message, { signal: within });
    } catch (error) {
      if (within.aborted) throw abortError(within);
      throw codedOf(error);
    }
  };
  const bus: SystemdBus = {
    call: ({ of = manager, ...what }, stop) =>
      invoke({ destination: systemd, path: managerPath, interface: of, ...what, body: [...(what.body ?? [])] }, stop),
    onJobEnd(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    lost: lost.signal,
    close: () => void stream.destroy(),
  };
  try {
    await greet((message) => invoke(message, signal), bus, signal);
    return bus;
  } catch (error) {
    bus.close();
    throw error;
  }
}

async function greet(
  invoke: (message: { member: string; signature?: string; body?: unknown[] }) => Promise<unknown>,
  systemdBus: SystemdBus,
  signal: AbortSignal,
): Promise<void> {
  const bus = "org.freedesktop.DBus";
  const at = { destination: bus, path: "/org/freedesktop/DBus", interface: bus };
  await invoke({ ...at, member: "Hello" });
  const rule = `type='signal',sender='${systemd}',path='${managerPath}',interface='${manager}',member='JobRemoved'`;
  await invoke({ ...at, member: "AddMatch", signature: "s", body: [rule] });
  await systemdBus.call({ member: "Subscribe" }, signal);
}

const codes: Readonly<Record<string, ErrorCode>> = {
  "org.freedesktop.DBus.Error.AccessDenied": "permission_denied",
  "org.freedesktop.DBus.Error.AuthFailed": "permission_denied",
  "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired": "permission_denied",
  "org.freedesktop.DBus.Error.InvalidArgs": "invalid_argument",
  "org.freedesktop.DBus.Error.PropertyReadOnly": "invalid_argument",
  "org.freedesktop.DBus.Error.NoReply": "unavailable",
  "org.freedesktop.DBus.Error.ServiceUnknown": "unavailable",
  "org.freedesktop.DBus.Error.NameHasNoOwner": "unavailable",
  "org.freedesktop.DBus.Error.Disconnected": "unavailable",
  "org.freedesktop.systemd1.NoSuchUnit": "not_found",
  "org.freedesktop.systemd1.UnitExists": "already_exists",
};

function codedOf(error: unknown): CodedError {
  const { dbusName, code, cause } = error as DBusError & { readonly code?: string };
  if (cause instanceof CodedError) return cause;
  if (code === "ECONNCLOSED")
    return new CodedError("unavailable", "the connection to systemd is lost", { cause: error });
  const known = dbusName === undefined ? undefined : codes[dbusName];
  return new CodedError(known ?? "unknown", `systemd: ${messageOf(error)}`, { cause: error });
}
