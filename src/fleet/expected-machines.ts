import type { FleetConfig, FleetListener } from "../config/fleet-configuration.ts";
import { CodedError } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import { createTrigger } from "../lib/trigger.ts";
import type { Secret } from "../objects.ts";
import type { Arrival, ExpectedMachine, MachineListeners } from "../seams/machine-listeners.ts";
import type { GraftedNode } from "./grafted-node.ts";
import { machineKeys } from "./member-configuration.ts";

export interface ExpectedMachinesDeps extends ClockAndLog {
  readonly fleet: Pick<FleetConfig, "mayHave">;
  readonly listener: FleetListener;
  listeners(deps: ClockAndLog): Promise<MachineListeners>;
  /** The objects of the release, with the defaults of their pools and the keys of enrolled machines, whoever owns them. */
  objects(): readonly GraftedNode[];
  /** Returns the Secret of that name in the fleet's namespace. */
  secret(name: string): Secret | undefined;
  /** Called when a machine has connected to this replica, or has disconnected. */
  onChange(): void;
}

/** The machines that may open a reverse tunnel to any replica, and those that are connected to this one. */
export interface ExpectedMachines extends Runnable {
  /** To be called when objects, pools or Secrets have changed. */
  check(): void;
  /** Returns the connection of an object's machine to this replica; undefined if there is none. */
  arrival(name: string): Arrival | undefined;
}

/** Registers the public keys of all objects with reverse tunnels at the release's listener: their machines connect to any replica, not only
 *  to their owners. Ends with its signal; connections of machines that this replica does not serve are then closed. */
export function createExpectedMachines(deps: ExpectedMachinesDeps): ExpectedMachines {
  const { fleet, listener, secret, onChange } = deps;
  const changed = createTrigger();
  const expected = new Map<string, { readonly machine: ExpectedMachine; keys: string }>();
  /** Public keys by the names of objects. */
  const wanted = () => {
    const keys = new Map<string, string>();
    for (const object of deps.objects()) {
      const { name } = object.metadata;
      const text = object.spec.ssh.reverse && fleet.mayHave(name) && keysOf(object, secret);
      if (text) keys.set(name, text);
    }
    return keys;
  };
  const update = async (listeners: MachineListeners, keys: ReadonlyMap<string, string>) => {
    for (const [name, { machine }] of expected) {
      if (keys.has(name)) continue;
      expected.delete(name);
      await machine[Symbol.asyncDispose]();
    }
    for (const [name, text] of keys) {
      const known = expected.get(name);
      if (known?.keys === text) continue;
      const machine = known?.machine ?? listeners.expect(listener, name, onChange);
      machine.setKeys(text);
      expected.set(name, { machine, keys: text });
    }
  };
  return {
    name: "reverse tunnels",
    check: changed.fire,
    arrival: (name) => expected.get(name)?.machine.arrival(),
    async run(signal) {
      const listeners = await deps.listeners(deps);
      while (!signal.aborted) {
        await changed.fired(signal);
        if (!signal.aborted) await update(listeners, wanted());
      }
      await update(listeners, new Map());
    },
  };
}

/** Returns the keys of an object's machine; undefined if it has none, and its owner says so in its status. */
function keysOf(object: GraftedNode, secret: ExpectedMachinesDeps["secret"]): string | undefined {
  try {
    return machineKeys(object, secret);
  } catch (error) {
    if (error instanceof CodedError) return undefined;
    throw error;
  }
}
