import { Duplex } from "node:stream";
import { type DBusConnection, type Message, Variant, createConnection, messageType } from "dbus-native";
import { busSocket } from "../../src/host/systemd/systemd-client.ts";
import type { FakeHost } from "./host.ts";

/** A call as systemd heard it, its properties with their types: `CPUShares=t:512`. */
export interface HeardCall {
  readonly member: string;
  readonly unit: string;
  readonly properties?: readonly string[];
}

interface FakeSystemdOptions {
  /** True for connections of a user who may not change units. */
  readonly denies?: boolean;
  /** True for a bus that does not let the user in. */
  readonly rejects?: boolean;
}

/** systemd behind a bus, in the protocol's own messages. */
export interface FakeSystemd {
  readonly heard: HeardCall[];
  readonly units: Set<string>;
  /** Results of the next jobs; `done` after them, `never` for no end. */
  readonly results: string[];
  connections(): number;
  /** Cuts all connections. */
  cut(): void;
  /** Serves one more connection: what a relay is connected to. */
  serve(wire: Duplex, options?: FakeSystemdOptions): void;
}

const own = "org.freedesktop.systemd1";
/** Unique name of systemd's connection. */
const owner = ":1.0";

/** @param options what those who connect to the host's bus may do; undefined for a machine without one. */
export async function fakeSystemd(host: FakeHost, options: FakeSystemdOptions | undefined): Promise<FakeSystemd> {
  const open = new Set<Duplex>();
  const state = { heard: [] as HeardCall[], units: new Set<string>(), results: [] as string[] };
  let last = 0;
  const next = () => ++last;
  const serve = (wire: Duplex, may: FakeSystemdOptions = {}) => {
    open.add(wire);
    wire.once("close", () => open.delete(wire));
    const connection = createConnection({ stream: loggedIn(wire, may), server: true, variants: "wrap" });
    connection.on("error", () => undefined);
    connection.on("message", (message) => answer({ connection, next, ...state }, may, message));
  };
  if (options) await host.listen({ unix: busSocket }, (wire) => serve(wire, options));
  return {
    ...state,
    serve,
    connections: () => open.size,
    cut: () => open.forEach((wire) => void wire.destroy()),
  };
}

/** The server's end, for clients that name no user: as a bus that takes whom the socket tells. */
export function loggedIn(wire: Duplex, { rejects = false }: FakeSystemdOptions): Duplex {
  const uid = Buffer.from(String(process.getuid?.() ?? 0)).toString("hex");
  const stream = new Duplex({
    read: () => undefined,
    write: (chunk: Buffer, _encoding, done) => void wire.write(chunk, done),
    final: (done) => void wire.end(done),
  });
  wire.on("data", (chunk: Buffer) => {
    const said = chunk.toString("latin1");
    if (rejects && said.includes("AUTH")) wire.write("REJECTED EXTERNAL\r\n");
    else stream.push(said === "DATA\r\n" ? `DATA ${uid}\r\n` : chunk);
  });
  wire.once("close", () => void stream.push(null));
  stream.once("end", () => void stream.destroy());
  return stream;
}

interface Served extends Pick<FakeSystemd, "heard" | "units" | "results"> {
  readonly connection: DBusConnection;
  /** A new number, of messages and jobs. */
  readonly next: () => number;
}

function answer(served: Served, { denies = false }: FakeSystemdOptions, message: Message): void {
  const { connection, heard, units, next } = served;
  const { member = "", body = [], destination = "" } = message;
  const sender = destination === "org.freedesktop.DBus" ? destination : owner;
  const about = { replySerial: message.serial ?? 0, destination: ":1.1", sender };
  const reply = (signature?: string, ...values: unknown[]) =>
    void connection.message({
      ...about,
      serial: next(),
      type: messageType.methodReturn,
      ...(signature !== undefined && { signature, body: values }),
    });
  const fail = (errorName: string) =>
    void connection.message({
      ...about,
      serial: next(),
      type: messageType.error,
      errorName,
      signature: "s",
      body: [errorName],
    });
  if (member === "Hello") return reply("s", ":1.1");
  if (member === "GetNameOwner") return reply("s", owner);
  if (member === "Get") return reply("v", new Variant("s", "252.38-1~deb12u1"));
  if (member === "AddMatch" || member === "Subscribe") return reply();
  if (denies) return fail("org.freedesktop.DBus.Error.AccessDenied");
  const unit = String(body[0]);
  const told = propertiesOf(body[2]);
  heard.push({ member, unit, ...(told.length > 0 && { properties: told }) });
  switch (member) {
    case "StartTransientUnit":
      if (units.has(unit)) return fail(`${own}.UnitExists`);
      units.add(unit);
      return runJob(served, unit, reply);
    case "StopUnit":
      return units.delete(unit) ? runJob(served, unit, reply) : fail(`${own}.NoSuchUnit`);
    case "SetUnitProperties":
      return units.has(unit) ? reply() : fail(`${own}.NoSuchUnit`);
    default:
      units.delete(unit);
      return reply();
  }
}

function propertiesOf(value: unknown): readonly string[] {
  const properties = Array.isArray(value) ? (value as readonly (readonly [string, Variant])[]) : [];
  return properties.map(([name, variant]) => `${name}=${textOf(variant)}`);
}

/** A job that has ended before the call that began it is answered, as happens. */
function runJob(
  { connection, results, next }: Served,
  unit: string,
  reply: (signature: string, job: string) => void,
): void {
  const id = next();
  const job = `/org/freedesktop/systemd1/job/${id}`;
  const result = results.shift() ?? "done";
  const end = () =>
    void connection.message({
      serial: next(),
      type: messageType.signal,
      path: "/org/freedesktop/systemd1",
      interface: `${own}.Manager`,
      member: "JobRemoved",
      sender: owner,
      signature: "uoss",
      body: [id, job, unit, result],
    });
  if (id % 2 === 0 && result !== "never") end();
  reply("o", job);
  if (id % 2 === 1 && result !== "never") end();
}

function textOf({ signature, value }: Variant): string {
  const text = value instanceof Uint8Array ? Buffer.from(value).toString("hex") : String(value);
  return `${signature}:${text}`;
}
