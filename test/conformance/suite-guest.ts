import { realpathSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { graftletCommand } from "../harness/agent.ts";
import { addresses } from "../harness/namespaces.ts";
import { must, start } from "../harness/processes.ts";
import { runtimeDaemons } from "../harness/runtime-daemon.ts";
import { type RuntimeRig, startRuntimeRig } from "../harness/runtime-rig.ts";
import type { GuestSizes } from "../harness/state.ts";
import { shellLine } from "../machines/guest-link.ts";
import { copyIn, copyOut, guestArgv } from "../machines/guest-way.ts";
import { runGinkgo } from "./ginkgo.ts";
import { guestMachines } from "./guest-machines.ts";
import { baseConfiguration, readOnlyPort, startReadOnlyPort, suiteFlags, writeKubelet } from "./node-agent.ts";
import { targetWith } from "./options.ts";
import type { SuiteOutcome } from "./outcomes.ts";
import { readEntries } from "./score/store.ts";
import { prepareFolder, type RunSuite, type SuiteRun } from "./suite-run.ts";

/** The suite of a node alone, in a guest: its API server, the agent as a unit of systemd, and containerd are all there, on cgroup v2. Files
 *  have the same paths there as here. */
export const runInGuest: RunSuite = async (run) => {
  const outcomes: SuiteOutcome[] = [];
  for (const { name, sizes, names } of guestMachines(run.names, readEntries()))
    outcomes.push(await runOn(sizes, { ...run, names, folder: join(run.folder, name) }));
  return {
    tests: new Map(outcomes.flatMap(({ tests }) => [...tests])),
    trouble: outcomes.flatMap(({ trouble }) => trouble),
  };
};

async function runOn(guest: Partial<GuestSizes>, run: SuiteRun): Promise<SuiteOutcome> {
  const { suite, reports } = prepareFolder(run, "e2e_node.test");
  const provider = targetWith(run.provider);
  const nodeName = "conformance-guest";
  await using rig = await startRuntimeRig(nodeName, provider, { guest });
  const { layout } = rig;
  const endpoint = `unix://${runtimeDaemons[provider].socket(layout)}`;
  const node = { nodeName, address: addresses.guest, endpoint };
  const binaries = join(run.folder, "bin");
  writeKubelet(binaries, run.agent, { tools: rig.tools, providerArgs: [] });
  const config = join(run.folder, "base-config.yaml");
  const base = { ...baseConfiguration({ podCIDR: addresses.pods }), cgroupDriver: "systemd" };
  writeFileSync(config, stringify(base));
  await copyIn(layout, [run.folder, ...programsOf(run, rig)]);
  using relays = new DisposableStack();
  if (run.agent === "graftlet") {
    await completeNode(rig);
    relays.use(startReadOnlyPort((argv) => guestArgv(layout, argv)));
  }
  return await runGinkgo({
    ginkgo: join(run.programs, "ginkgo"),
    suite,
    description: "E2eNode Suite",
    names: run.names,
    processes: 1,
    args: suiteFlags(node, { binaries, config, reports }, run.names),
    folder: run.folder,
    start(argv, { env, cwd, ...options }) {
      const inside = guestArgv(
        layout,
        [...Object.entries(env ?? {}).map(([name, value]) => `${name}=${value}`), ...argv],
        cwd,
      );
      // The suite's files are here once ginkgo has ended.
      const script = `code=0; ${shellLine(inside)} || code=$?; ${copyOut(layout, run.folder)}; exit $code`;
      return start(["sh", "-c", script], options);
    },
    ended: run.ended,
    limits: run.limits,
  });
}

/** Programs that the guest is given: the suite's, and those of the agent. */
function programsOf({ programs, agent }: SuiteRun, { tools }: RuntimeRig): readonly string[] {
  const ofSuite = ["ginkgo", "e2e_node.test"].map((name) => join(programs, name));
  if (agent === "kubelet") return [...ofSuite, tools.path("kubelet")];
  return [...ofSuite, ...graftletCommand({ built: true }).filter((word) => word.startsWith("/")), readOnlyPort];
}

/** Gives the guest the libraries that Node is linked with and that the guest's system has not. */
async function completeNode({ layout }: RuntimeRig): Promise<void> {
  const missing = (await must(guestArgv(layout, ["ldd", process.execPath]))).matchAll(/^\s*(\S+) => not found$/gm);
  const names = [...missing].map(([, name]) => name);
  const here = (await must(["ldd", process.execPath])).matchAll(/^\s*(\S+) => (\/\S+) /gm);
  const paths = [...here].flatMap(([, name, path = ""]) => (names.includes(name) ? [path, realpathSync(path)] : []));
  if (paths.length > 0) await copyIn(layout, paths);
}
