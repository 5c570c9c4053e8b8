import type { Daemons } from "../harness/daemons.ts";
import { type Finished, must, run, type RunOptions } from "../harness/processes.ts";
import { startRuntimeRig } from "../harness/runtime-rig.ts";
import { sshSettings } from "../harness/sshd.ts";
import type { GuestSizes, Layout } from "../harness/state.ts";
import { rebootGuest } from "./guest.ts";
import { guestArgv, guestRoot } from "./guest-way.ts";
import { powerOff, powerOn } from "./machine.ts";

/** A machine that is reached over SSH with a kernel of its own: Debian with systemd on cgroup v2, NUMA nodes, swap and a container
 *  runtime, on an emulated processor. It ends when it is disposed of or when this process ends, however it ends. */
export interface Guest extends AsyncDisposable {
  readonly layout: Layout;
  readonly daemons: Daemons;
  /** Settings of the ssh provider that lead to it from within its network: address, user, keys, runtime. */
  readonly ssh: Readonly<Record<string, unknown>>;
  /** Its files as a path of this machine. */
  readonly root: string;
  /** Runs a command there as root, without the sshd that graftlet uses. */
  run(argv: readonly string[], options?: RunOptions): Promise<Finished>;
  /** The same for a command that must succeed. @returns its standard output. */
  must(argv: readonly string[], options?: RunOptions): Promise<string>;
  /** Has its init shut down and boot again, with its runtime and sshd. @returns the new boot id. */
  reboot(): Promise<string>;
  /** Cuts its power and boots it again. @returns the new boot id. */
  restart(): Promise<string>;
}

/** Choices for a guest; of sizes `guestSizes` unless given. */
export interface GuestOptions extends Partial<GuestSizes> {
  /** Tells it from the clusters and other machines of this one: at most 12 lower-case letters, digits and dashes. */
  readonly name: string;
}

/** Starts a guest that is there by itself, with registries that its runtime pulls the tests' images from. */
export async function guestMachine({ name, ...sizes }: GuestOptions): Promise<Guest> {
  const rig = await startRuntimeRig(name, "ssh-guest", { guest: sizes });
  const { layout, daemons } = rig;
  const withDaemons = async (boot: () => Promise<string>): Promise<string> => {
    const bootId = await boot();
    await daemons.startRuntime();
    await daemons.startSshd();
    return bootId;
  };
  return {
    layout,
    daemons,
    ssh: sshSettings(layout, "ssh-guest", layout.containerdSocket),
    root: guestRoot(layout),
    run: (argv, options) => run(guestArgv(layout, argv), options),
    must: (argv, options) => must(guestArgv(layout, argv), options),
    reboot: () => withDaemons(() => rebootGuest(layout)),
    restart: () =>
      withDaemons(async () => {
        await powerOff(layout);
        return await powerOn(layout);
      }),
    [Symbol.asyncDispose]: () => rig[Symbol.asyncDispose](),
  };
}
