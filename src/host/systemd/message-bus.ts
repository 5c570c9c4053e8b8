import type { DBusError } from "dbus-native";
import type { Clock } from "../../lib/clock.ts";
import { CodedError, type ErrorCode, abortError, messageOf } from "../../lib/errors.ts";
import { type Wire, asPeer } from "./peer-login.ts";

/** An object on the bus, by whom it is served. */
export interface BusObject {
  readonly destination: string;
  readonly path: string;
  readonly interface: string;
}

/** A call of a method. */
export interface BusMethod extends BusObject {
  readonly member: string;
  /** Types of the arguments in D-Bus's words. */
  readonly signature?: string;
  readonly body?: readonly unknown[];
}

/** A signal that objects send. */
export interface BusSignal extends Omit<BusObject, "destination"> {
  readonly member: string;
  /** Anybody's unless given. */
  readonly sender?: string;
}

/** A connection to a bus. */
export interface MessageBus {
  /** @returns the first value of the answer, a variant as its value.
   *  @throws not_found (no such unit), already_exists, permission_denied, invalid_argument, deadline_exceeded, unavailable
   *  (the connection is lost); the signal's reason. */
  call(method: BusMethod, signal: AbortSignal): Promise<unknown>;
  /** Has the bus pass a signal on, for as long as the connection lasts. */
  hear(of: BusSignal, listener: (body: readonly unknown[]) => void, signal: AbortSignal): Promise<void>;
  /** Aborts, with unavailable, once nothing can be asked any more. */
  readonly lost: AbortSignal;
  close(): void;
}

/** A call's answer is waited for so long, milliseconds. */
const answerWithinMs = 25_000;
const bus = "org.freedesktop.DBus";
const broker: BusObject = { destination: bus, path: "/org/freedesktop/DBus", interface: bus };

/** Logs in on a bus.
 *  @throws permission_denied when the bus does not let graftlet's user in; unavailable, deadline_exceeded. */
export async function connectMessageBus(wire: Wire, clock: Clock, signal: AbortSignal): Promise<MessageBus> {
  // Loading it takes time, and few nodes need it.
  const { createClient } = await import("dbus-native");
  const stream = asPeer(wire);
  // Its own greeting would throw past everybody when it gets no answer.
  const client = createClient({ stream, authMethods: ["EXTERNAL"], direct: true, timeout: 0 });
  const { connection } = client;
  connection.on("error", () => void stream.destroy());
  connection.on("handlerError", () => void stream.destroy());
  const lost = new AbortController();
  stream.once("close", () => lost.abort(new CodedError("unavailable", "the connection to the system bus is lost")));
  const call = async (method: BusMethod, stop: AbortSignal): Promise<unknown> => {
    const within = clock.within(answerWithinMs, stop);
    try {
      return await client.invoke<unknown>({ ...method, body: [...(method.body ?? [])] }, { signal: within });
    } catch (error) {
      if (within.aborted) throw abortError(within);
      throw codedOf(method.destination, error);
    }
  };
  const close = () => void stream.destroy();
  try {
    await call({ ...broker, member: "Hello" }, signal);
  } catch (error) {
    close();
    throw error;
  }
  return {
    call,
    async hear(of, listener, stop) {
      connection.on("message", ({ interface: from, path, member, body = [] }) => {
        if (from === of.interface && path === of.path && member === of.member) listener(body);
      });
      const { sender, ...rest } = of;
      const rule = Object.entries({ type: "signal", ...(sender && { sender }), ...rest })
        .map(([key, value]) => `${key}='${value}'`)
        .join();
      await call({ ...broker, member: "AddMatch", signature: "s", body: [rule] }, stop);
    },
    lost: lost.signal,
    close,
  };
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

/** Names of those who are asked, for messages. */
const names: Readonly<Record<string, string>> = { [bus]: "the system bus", "org.freedesktop.login1": "logind" };

function codedOf(asked: string, error: unknown): CodedError {
  const { dbusName, code, cause } = error as DBusError & { readonly code?: string };
  if (cause instanceof CodedError) return cause;
  if (code === "ECONNCLOSED")
    return new CodedError("unavailable", "the connection to the system bus is lost", { cause: error });
  const known = dbusName === undefined ? undefined : codes[dbusName];
  return new CodedError(known ?? "unknown", `${names[asked] ?? "systemd"}: ${messageOf(error)}`, { cause: error });
}
