import type { Clock } from "../../src/lib/clock.ts";
import type { MachineListeners } from "../../src/seams/machine-listeners.ts";
import type { SimulatedProcess } from "./fleet-world.ts";

interface Tunnel {
  readonly name: string;
  readonly uid: string;
  /** Monotonic milliseconds. */
  readonly at: number;
  /** Since when its replica has not answered, monotonic milliseconds. */
  silentSince: number | undefined;
}

interface Listener {
  readonly process: SimulatedProcess;
  /** Called when the connections of a machine have changed, by the machine's name. */
  readonly expected: Map<string, () => void>;
}

/** Time after which a machine notices that its connection, or its attempt to connect, is not answered, milliseconds. */
const [keepaliveMs, connectMs] = [15_000, 5_000];

/** Machines that open reverse tunnels to replicas at random, as through a Service, and open them again when they break. */
export function diallingMachines(clock: Pick<Clock, "monotonic">, random: () => number, names: readonly string[]) {
  const listeners = new Map<string, Listener>();
  let tunnels: readonly Tunnel[] = [];
  const redialAt = new Map(names.map((name) => [name, 0]));
  const tell = ({ name, uid }: Pick<Tunnel, "name" | "uid">) => {
    const { process, expected } = listeners.get(uid) ?? {};
    const onChange = expected?.get(name);
    if (onChange) process?.clock.after(1, onChange);
  };
  const remove = (gone: readonly Tunnel[]) => {
    tunnels = tunnels.filter((tunnel) => !gone.includes(tunnel));
    for (const { name, uid } of gone) {
      redialAt.set(name, clock.monotonic() + 1_000 + random() * 4_000);
      tell({ name, uid });
    }
  };
  const dial = (name: string, uid: string) => {
    tunnels = [{ name, uid, at: clock.monotonic(), silentSince: undefined }, ...tunnels];
    tell({ name, uid });
  };
  return {
    dial,
    isAt: (name: string, uid: string) => tunnels.some((tunnel) => tunnel.name === name && tunnel.uid === uid),
    /** Breaks the tunnels that cannot live on, and lets machines without one connect. */
    step() {
      const now = clock.monotonic();
      for (const tunnel of tunnels) {
        const isSilent = listeners.get(tunnel.uid)?.process.state() === "stopped";
        tunnel.silentSince = isSilent ? (tunnel.silentSince ?? now) : undefined;
      }
      remove(
        tunnels.filter(({ name, uid, silentSince = now }) => {
          const listener = listeners.get(uid);
          const isOpen = listener?.process.state() !== "dead" && listener?.expected.has(name);
          return !isOpen || now - silentSince >= keepaliveMs;
        }),
      );
      for (const name of names) {
        if (tunnels.some((tunnel) => tunnel.name === name) || now < (redialAt.get(name) ?? 0)) continue;
        const alive = [...listeners].filter(([, { process }]) => process.state() !== "dead");
        const [uid, listener] = alive[Math.floor(random() * alive.length)] ?? [];
        redialAt.set(name, now + 1_000 + random() * 4_000 + (listener?.process.state() === "stopped" ? connectMs : 0));
        if (uid !== undefined && listener?.process.state() === "running" && listener.expected.has(name))
          dial(name, uid);
      }
    },
    /** The listener of a replica. */
    listenersOf(uid: string, process: SimulatedProcess): MachineListeners {
      const expected = new Map<string, () => void>();
      listeners.set(uid, { process, expected });
      return {
        open: async () => ({ [Symbol.asyncDispose]: async () => undefined }),
        expect(_listener, name, onChange) {
          expected.set(name, onChange);
          return {
            setKeys: () => undefined,
            arrival() {
              const newest = tunnels.find((tunnel) => tunnel.name === name && tunnel.uid === uid);
              return newest && { at: newest.at, isDoubtful: false };
            },
            [Symbol.asyncDispose]: async () => void expected.delete(name),
          };
        },
        publicKeyOf: () => "",
      };
    },
  };
}
