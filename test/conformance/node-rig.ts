import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { addImage } from "../cluster/images/build.ts";
import { samplePluginImage } from "../cluster/images/catalog.ts";
import { agentAddresses, agentMachineArgv, createAgentMachine } from "../harness/agent-machine.ts";
import { addresses, insideArgv } from "../harness/namespaces.ts";
import type { ProcessId } from "../harness/processes.ts";
import { runtimeDaemons } from "../harness/runtime-daemon.ts";
import { type RuntimeRig, startRuntimeRig } from "../harness/runtime-rig.ts";
import { servedStore } from "../harness/registry.ts";
import { sshSettings } from "../harness/sshd.ts";
import { type Layout, readState } from "../harness/state.ts";
import type { Tools } from "../harness/tools.ts";
import { startLogind } from "./logind.ts";
import type { Outside } from "./options.ts";
import { giveOwnMachine } from "./own-machine.ts";

/** The root directory that the suite has the agent keep. */
export const rootDirectory = "/var/lib/kubelet";

/** A machine for e2e_node: a container runtime with registries and no API server, on a disk and in cgroups of its own; over SSH a
 *  second one beside it, for the suite and the agent. */
export interface NodeRig extends AsyncDisposable {
  readonly tools: Tools;
  readonly layout: Layout;
  readonly nodeName: string;
  /** Where the agent answers. */
  readonly address: string;
  readonly podCIDR: string;
  /** The runtime's socket, as a URL. */
  readonly endpoint: string;
  /** The folder of its daemons' logs. */
  readonly logs: string;
  /** Flags that name the provider to graftlet. */
  readonly providerArgs: readonly string[];
  /** The command that runs `argv` where the suite and the agent are. */
  argv(argv: readonly string[], cwd: string): readonly string[];
}

/** Starts a rig under a name of its own. */
export async function startNodeRig(name: string, provider: Outside): Promise<NodeRig> {
  await using stack = new AsyncDisposableStack();
  const rig = stack.use(await startRuntimeRig(name, provider));
  const { layout } = rig;
  await addImage(samplePluginImage, servedStore(layout), console.error);
  const holder = readState(layout)?.holder;
  if (!holder) throw new Error(`the state of the rig ${layout.name} cannot be read: ${layout.stateFile}`);
  await giveOwnMachine(rig, holder, provider, [rootDirectory, "/var/log/pods"]);
  await startLogind(rig, holder);
  const nodeName = layout.name;
  if (provider === "ssh") await createAgentMachine(layout, nodeName);
  const whole = stack.move();
  return {
    tools: rig.tools,
    layout,
    nodeName,
    address: provider === "ssh" ? agentAddresses.agent : addresses.node,
    podCIDR: addresses.pods,
    endpoint: `unix://${runtimeDaemons[provider].socket(layout)}`,
    logs: layout.logs,
    providerArgs: providerArgs(rig, provider),
    argv: (argv, cwd) => whereSuiteRuns(layout, provider, holder)(argv, cwd),
    [Symbol.asyncDispose]: () => whole.disposeAsync(),
  };
}

function whereSuiteRuns(layout: Layout, provider: Outside, holder: ProcessId) {
  return (argv: readonly string[], cwd: string): string[] =>
    provider === "ssh" ? agentMachineArgv(layout, argv, cwd) : insideArgv(layout, holder, argv, cwd);
}

/** A kubelet's command line names a CRI runtime; another provider's is named in the provider's own file. */
function providerArgs({ layout }: Pick<RuntimeRig, "layout">, provider: Outside): readonly string[] {
  if (provider === "cri") return [];
  const socket = runtimeDaemons[provider].socket(layout);
  const settings =
    provider === "ssh"
      ? { ...sshSettings(layout, provider, socket), rootDir: rootDirectory }
      : { socket: `unix://${socket}`, podCIDR: addresses.pods };
  const file = join(layout.dir, "provider.yaml");
  writeFileSync(file, stringify(settings));
  return [`--provider=${provider}`, `--provider-config=${file}`];
}
