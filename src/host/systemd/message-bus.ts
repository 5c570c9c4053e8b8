import type { Clock } from "../../lib/clock.ts";
import { CodedError, type ErrorCode, throwIfAborted, ignoreCode } from "../../lib/errors.ts";
import { untilAborted } from "../../lib/runnables.ts";
import { type BusStreams, openBusConnection } from "./bus-connection.ts";
import { type IncomingMessage, type Scalar, encodeCall, valuesOf } from "./wire-format.ts";
import { createSignal } from "../../lib/signal.ts";

/** An object on the bus, with the service that owns it. */
export interface BusObject {
  readonly destination: string;
  readonly path: string;
  readonly interface: string;
}

export interface BusMethod extends BusObject {
  readonly member: string;
  /** D-Bus signature of the arguments. */
  readonly signature?: string;
  readonly body?: readonly unknown[];
}

/** A signal emitted by an object. */
export interface BusSignal extends Omit<BusObject, "destination"> {
  readonly member: string;
  /** Name of the sending service: signals of other senders are ignored, since every user of a machine may send them. */
  readonly sender: string;
}

/** A connection to a bus. Messages are accepted only from the owner of the expected name. */
export type MessageBus = Awaited<ReturnType<typeof connectMessageBus>>;

const replyTimeoutMs = 25_000;
/** Maximum number of calls waiting for a reply. */
const maxPendingCalls = 4_096;
/** Maximum length of an error text, characters. */
const maxErrorText = 512;
const bus = "org.freedesktop.DBus";
const broker: BusObject = { destination: bus, path: "/org/freedesktop/DBus", interface: bus };

interface PendingCall {
  readonly destination: string;
  /** Called while the reply is read, before any later message. */
  readonly answered: (message: IncomingMessage) => void;
}

/** Connects to a bus. @throws permission_denied if the bus rejects graftlet's user; unavailable, deadline_exceeded. */
export async function connectMessageBus(wire: BusStreams, clock: Clock, signal: AbortSignal) {
  const session = createSession(wire, clock);
  const { ask, lost, close } = session;
  const trackOwner = createOwnerTracker(session);
  try {
    await ask({ ...broker, member: "Hello" }, signal);
  } catch (error) {
    close();
    throw error;
  }
  return {
    /** @returns the first value of the reply, with a variant unwrapped; undefined without one. @throws not_found (no such unit),
     *  already_exists, permission_denied, invalid_argument, deadline_exceeded, unavailable (the connection is lost),
     *  resource_exhausted (too many calls at once); the signal's reason. */
    async call(method: BusMethod, stop: AbortSignal): Promise<Scalar | undefined> {
      await trackOwner(method.destination, stop);
      return ask(method, stop);
    },
    /** Subscribes to a signal for the lifetime of the connection. Signals with values other than numbers and strings are
     *  ignored. */
    async subscribe(of: BusSignal, listener: (values: readonly Scalar[]) => void, stop: AbortSignal): Promise<void> {
      await trackOwner(of.sender, stop);
      await session.listen(of, listener, stop);
    },
    /** Aborts, with unavailable, once the connection is lost. */
    lost,
    close,
  };
}

type Listener = (values: readonly Scalar[]) => void;

/** Calls and signals of a connection that may still be authenticating. */
interface Session {
  readonly lost: AbortSignal;
  close(): void;
  /** Unique names of the owners of well-known names. Messages of other senders are dropped. */
  readonly owners: Map<string, string>;
  /** @param answered called with the reply before any later message is read. */
  ask(
    method: BusMethod,
    stop: AbortSignal,
    answered?: (value: Scalar | undefined) => void,
  ): Promise<Scalar | undefined>;
  /** @param more additional match rule. */
  listen(of: BusSignal, listener: Listener, stop: AbortSignal, more?: string): Promise<void>;
}

function createSession(wire: BusStreams, clock: Clock): Session {
  const pending = new Map<number, PendingCall>();
  const signals = createSignal<[message: IncomingMessage]>();
  const owners = new Map([[bus, bus]]);
  const connection = openBusConnection(wire, clock, (message) => {
    if (message.type === "signal") return signals.send(message);
    const call = message.replySerial === undefined ? undefined : pending.get(message.replySerial);
    // The bus itself replies for a missing service.
    if (call && (message.sender === bus || message.sender === owners.get(call.destination))) call.answered(message);
  });
  const { lost, close } = connection;
  let lastSerial = 0;
  const ask: Session["ask"] = async (method, stop, answered) => {
    if (pending.size >= maxPendingCalls)
      throw new CodedError("resource_exhausted", `${maxPendingCalls} calls are already pending on the system bus`);
    const within = clock.within(replyTimeoutMs, stop);
    const serial = ++lastSerial;
    const answer = Promise.withResolvers<Scalar | undefined>();
    const take = (message: IncomingMessage) => {
      try {
        if (message.type === "error") throw errorOf(method.destination, message);
        const [value] = valuesOf(message);
        answered?.(value);
        answer.resolve(value);
      } catch (error) {
        answer.reject(error);
      }
    };
    pending.set(serial, { destination: method.destination, answered: take });
    try {
      connection.send(encodeCall({ ...method, serial }));
      return await untilAborted(untilAborted(answer.promise, lost), within);
    } finally {
      pending.delete(serial);
    }
  };
  const listen: Session["listen"] = async (of, listener, stop, more = "") => {
    const ifIt = (message: IncomingMessage) => {
      const { sender, path, interface: from, member } = message;
      const isIt = from === of.interface && path === of.path && member === of.member;
      if (isIt && sender === owners.get(of.sender)) withValues(message, listener);
    };
    const unsubscribe = signals.subscribe(ifIt);
    const parts = { type: "signal", sender: of.sender, path: of.path, interface: of.interface, member: of.member };
    const rule = Object.entries(parts).map(([key, value]) => `${key}='${value}'`);
    try {
      await ask({ ...broker, member: "AddMatch", signature: "s", body: [`${rule.join()}${more}`] }, stop);
    } catch (error) {
      unsubscribe();
      throw error;
    }
  };
  return { owners, ask, listen, lost, close };
}

/** Tracks the owners of names. @returns a function that starts tracking a name, if necessary. */
function createOwnerTracker({
  owners,
  ask,
  listen,
  lost,
}: Session): (name: string, stop: AbortSignal) => Promise<void> {
  const follow = async (name: string): Promise<void> => {
    const setOwner = (owner: Scalar | undefined) => {
      if (typeof owner === "string" && owner !== "") owners.set(name, owner);
      else owners.delete(name);
    };
    const onChange = ([of, , owner]: readonly Scalar[]) => {
      if (of === name) setOwner(owner);
    };
    const changed = { sender: bus, path: broker.path, interface: bus, member: "NameOwnerChanged" };
    await listen(changed, onChange, lost, `,arg0='${name}'`);
    // A service that is not running may be started by the first call.
    await ignoreCode(
      ask({ ...broker, member: "GetNameOwner", signature: "s", body: [name] }, lost, setOwner),
      "unavailable",
    );
    throwIfAborted(lost);
  };
  const followed = new Map<string, Promise<void>>();
  return (name, stop) => {
    const begun = followed.get(name) ?? follow(name);
    followed.set(name, begun);
    begun.catch(() => followed.delete(name));
    return untilAborted(begun, stop);
  };
}

/** Passes on a message's values if all of them can be decoded. */
function withValues(message: IncomingMessage, listener: (values: readonly Scalar[]) => void): void {
  let values: readonly Scalar[];
  try {
    values = valuesOf(message);
  } catch {
    return;
  }
  listener(values);
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

/** Names of services for messages. */
const serviceNames: Readonly<Record<string, string>> = { [bus]: "the system bus", "org.freedesktop.login1": "logind" };

function errorOf(destination: string, message: IncomingMessage): CodedError {
  const { errorName = "an error without a name" } = message;
  let reported: Scalar | undefined;
  withValues(message, ([text]) => (reported = text));
  const text = (typeof reported === "string" && reported !== "" ? reported : errorName).slice(0, maxErrorText);
  return new CodedError(codes[errorName] ?? "unknown", `${serviceNames[destination] ?? "systemd"}: ${text}`);
}
