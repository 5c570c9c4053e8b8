import { agentAddresses } from "../harness/agent-machine.ts";
import type { Cluster } from "../harness/cluster.ts";
import { networkArgv } from "../harness/namespaces.ts";
import { must, type RunOptions } from "../harness/processes.ts";
import { startRuntimeRig } from "../harness/runtime-rig.ts";
import type { Layout } from "../harness/state.ts";
import { copyIn, guestArgv } from "./guest-way.ts";

/** The address of the harness's own way to the guest, beside the cluster's node and the guest itself. */
const wayIn = "10.10.0.3";

/** The switch that the guest's cable is plugged into. @see joinNetwork */
const lan = "lan0";

/** A machine with a kernel of its own in a cluster's network, which is neither its node nor its target. Its way to all else is the
 *  cluster's node. */
export interface GuestNeighbour extends AsyncDisposable {
  /** Runs a command there as root, which must succeed. @returns its standard output. */
  must(argv: readonly string[], options?: RunOptions): Promise<string>;
  /** Copies files of this machine to the same paths there. */
  copyIn(paths: readonly string[]): Promise<void>;
  /** Plugs one end of a cable, a device of another network of this machine, into the switch that the guest and the cluster's node are on. */
  plug(other: Pick<Layout, "netns">, device: string): Promise<void>;
}

/** Starts a guest beside a cluster's node. It ends when it is disposed of or when this process ends. @param name tells its rig from others. */
export async function startGuestNeighbour(cluster: Cluster, name: string): Promise<GuestNeighbour> {
  await using undo = new AsyncDisposableStack();
  const rig = undo.use(await startRuntimeRig(name, "ssh-guest", { address: wayIn }));
  const { layout } = rig;
  const inside = (argv: readonly string[], options?: RunOptions) => must(guestArgv(layout, argv), options);
  const plug = async ({ netns }: Pick<Layout, "netns">, device: string, as = device) => {
    await must(["nsenter", `--net=${netns}`, "ip", "link", "set", device, "netns", layout.netnsName, "name", as]);
    await must(networkArgv(layout, ["ip", "link", "set", as, "master", lan, "up"]));
  };
  await plug(cluster.layout, "uplink0", "cluster0");
  undo.defer(async () => {
    const back = ["ip", "link", "set", "cluster0", "netns", cluster.layout.netnsName, "name", "uplink0"];
    await must(networkArgv(layout, back));
  });
  // Another machine of the cluster has that address.
  await inside(["ip", "address", "delete", `${agentAddresses.target}/${agentAddresses.prefix}`, "dev", "eth0"]);
  const whole = undo.move();
  return {
    must: inside,
    copyIn: (paths) => copyIn(layout, paths),
    plug,
    [Symbol.asyncDispose]: () => whole.disposeAsync(),
  };
}
