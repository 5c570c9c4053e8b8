import type { Finished, RunOptions } from "../harness/processes.ts";
import { must, type ProcessId, run } from "../harness/processes.ts";
import { startRuntimeRig } from "../harness/runtime-rig.ts";
import type { Daemons } from "../harness/daemons.ts";
import { sshSettings } from "../harness/sshd.ts";
import type { Layout } from "../harness/state.ts";
import { boot } from "./boot.ts";
import { machineArgv, machineOf } from "./enter.ts";
import { powerOff } from "./machine.ts";

/** A machine that is reached over SSH, as far as anybody on it can tell: Debian with systemd, sshd, D-Bus and a container runtime,
 *  on this machine's kernel. It ends when it is disposed of or when this process ends, however it ends. */
export interface SystemdMachine extends AsyncDisposable {
  readonly layout: Layout;
  readonly daemons: Daemons;
  /** Settings of the ssh provider that lead to it from within its network: address, user, keys, runtime. */
  readonly ssh: Readonly<Record<string, unknown>>;
  /** Its systemd, by its number here. */
  systemd(): ProcessId;
  /** Its files with all that is mounted there, as a path of this machine; another one after a restart. */
  root(): string;
  /** Runs a command there as root, without SSH. */
  run(argv: readonly string[], options?: RunOptions): Promise<Finished>;
  /** The same for a command that must succeed. @returns its standard output. */
  must(argv: readonly string[], options?: RunOptions): Promise<string>;
  /** Cuts its power and boots it again, with its disk and its address. @returns the new boot id. */
  restart(): Promise<string>;
}

/** Choices for a machine. */
export interface MachineOptions {
  /** Tells it from the clusters and other machines of this one: at most 12 lower-case letters, digits and dashes. */
  readonly name: string;
  /** Runtime of its containers, which are slices and scopes of its systemd. */
  readonly runtime: "containerd";
}

/** Boots a machine that is there by itself, with registries that its runtime pulls the tests' images from. */
export async function systemdMachine({ name }: MachineOptions): Promise<SystemdMachine> {
  const rig = await startRuntimeRig(name, "ssh-systemd");
  const { layout, daemons } = rig;
  const systemd = (): ProcessId => {
    const machine = machineOf(layout);
    if (!machine) throw new Error(`the machine ${name} has no systemd`);
    return machine;
  };
  return {
    layout,
    daemons,
    ssh: sshSettings(layout, "ssh-systemd", layout.containerdSocket),
    systemd,
    root: () => `/proc/${systemd().pid}/root`,
    run: (argv, options) => run(machineArgv(systemd(), argv), options),
    must: (argv, options) => must(machineArgv(systemd(), argv), options),
    async restart() {
      await powerOff(layout);
      const bootId = await boot(layout);
      await daemons.startRuntime();
      await daemons.startSshd();
      return bootId;
    },
    [Symbol.asyncDispose]: () => rig[Symbol.asyncDispose](),
  };
}
