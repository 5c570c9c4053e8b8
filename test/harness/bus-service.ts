import { type Message, createConnection, messageType } from "dbus-native";

const broker = {
  destination: "org.freedesktop.DBus",
  path: "/org/freedesktop/DBus",
  interface: "org.freedesktop.DBus",
};

/** Values of a reply, with their types. */
export interface Answer {
  readonly signature?: string;
  readonly body?: unknown[];
}

/** A connection to a bus, of an implementation of D-Bus that is not graftlet's. */
export interface Service {
  readonly uniqueName: string;
  send(message: Omit<Message, "serial">): void;
  ask(member: string, signature: string, ...body: unknown[]): Promise<unknown>;
  end(): void;
}

/** Connects to a bus.
 *  @param answer is asked for the reply to each call. @param heard is told of each signal. */
export async function connectService(
  socket: string,
  answer: (call: Message) => Answer,
  heard: (signal: Message) => void = () => undefined,
): Promise<Service> {
  const connection = createConnection({ socket, variants: "wrap" });
  const pending = new Map<number, (value: unknown) => void>();
  let serial = 0;
  const send = (message: Omit<Message, "serial">) => void connection.message({ ...message, serial: ++serial });
  connection.on("error", () => undefined);
  connection.on("message", (message: Message) => {
    if (message.replySerial !== undefined) pending.get(message.replySerial)?.(message.body?.[0]);
    if (message.type === messageType.signal) heard(message);
    if (message.type !== messageType.methodCall) return;
    const about = { replySerial: message.serial ?? 0, destination: message.sender ?? "" };
    send({ type: messageType.methodReturn, ...about, ...answer(message) });
  });
  const ask = (member: string, signature: string, ...body: unknown[]) => {
    send({ ...broker, type: messageType.methodCall, member, ...(signature !== "" && { signature, body }) });
    return new Promise((resolve) => pending.set(serial, resolve));
  };
  const uniqueName = String(await ask("Hello", ""));
  return { uniqueName, send, ask, end: () => connection.end() };
}
