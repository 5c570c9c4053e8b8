import type { Duplex } from "node:stream";
import { type DBusConnection, type Message, Variant, createConnection, messageType } from "dbus-native";
import { inhibitDelayFile } from "../../src/host/systemd/logind.ts";
import { busSocket } from "../../src/host/systemd/systemd-client.ts";
import type { FakeHost } from "./host.ts";
import { loggedIn } from "./systemd.ts";

/** logind behind a bus, and systemd-inhibit, which holds its locks. */
export interface FakeLogind {
  /** Locks that are held. */
  locks(): number;
  connections(): number;
  /** Begins a shutdown, or calls it off, and says so.
   *  @param sender whoever says so on the bus; logind itself unless given. */
  announce(active: boolean, sender?: string): Promise<void>;
  /** Cuts all connections, as a bus that starts anew. */
  cut(): void;
  /** Ends what holds the locks. */
  endLocks(): void;
  /** Longest delay, seconds; its file is read when it is told to. */
  delaySeconds: number;
  /** It does not read its file. */
  isDeaf: boolean;
  /** A shutdown is under way: there are no locks any more. */
  isShuttingDown: boolean;
}

const own = "org.freedesktop.login1";
/** Unique name of logind's connection. */
const owner = ":1.7";

/** A machine with logind. */
export async function fakeLogind(host: FakeHost): Promise<FakeLogind> {
  const open = new Map<Duplex, DBusConnection>();
  const locks = new Set<() => void>();
  let serial = 0;
  const logind: FakeLogind = {
    locks: () => locks.size,
    connections: () => open.size,
    async announce(active, sender = owner) {
      if (sender === owner) logind.isShuttingDown = active;
      for (const connection of open.values())
        connection.message({
          serial: ++serial,
          type: messageType.signal,
          path: "/org/freedesktop/login1",
          interface: `${own}.Manager`,
          member: "PrepareForShutdown",
          sender,
          signature: "b",
          body: [active],
        });
      await new Promise(setImmediate);
    },
    cut: () => open.forEach((_, wire) => void wire.destroy()),
    endLocks: () => locks.forEach((end) => end()),
    delaySeconds: 5,
    isDeaf: false,
    isShuttingDown: false,
  };
  const readFile = () => {
    const [, seconds] = /^InhibitDelayMaxSec=(\d+)$/m.exec(host.files.text(inhibitDelayFile)) ?? [];
    if (!logind.isDeaf) logind.delaySeconds = Number(seconds);
  };
  const answer = (
    connection: DBusConnection,
    { destination = "", member = "", body = [], serial: replySerial = 0 }: Message,
  ) => {
    const value =
      body[1] === "InhibitDelayMaxUSec"
        ? new Variant("t", BigInt(logind.delaySeconds) * 1_000_000n)
        : new Variant("b", logind.isShuttingDown);
    if (member === "KillUnit") readFile();
    const returned = {
      Hello: { signature: "s", body: [":1.1"] },
      GetNameOwner: { signature: "s", body: [owner] },
      Get: { signature: "v", body: [value] },
    }[member];
    connection.message({
      serial: ++serial,
      type: messageType.methodReturn,
      replySerial,
      destination: ":1.1",
      sender: destination.startsWith("org.freedesktop.DBus") ? destination : owner,
      ...returned,
    });
  };
  await host.listen({ unix: busSocket }, (wire) => {
    const connection = createConnection({ stream: loggedIn(wire, {}), server: true, variants: "wrap" });
    open.set(wire, connection);
    wire.once("close", () => open.delete(wire));
    connection.on("error", () => undefined);
    connection.on("message", (message) => answer(connection, message));
  });
  host.program("systemd-inhibit", async (_args, { stdin, stdout, stderr, killed }) => {
    if (logind.isShuttingDown) {
      stderr.write("Failed to inhibit: The operation inhibition has been requested for is already running\n");
      return 1;
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    locks.add(resolve);
    stdout.write("held\n");
    stdin.once("end", resolve).resume();
    killed.addEventListener("abort", () => resolve(), { once: true });
    await promise;
    locks.delete(resolve);
    return 0;
  });
  return logind;
}
