import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { must, start } from "../harness/processes.ts";
import { runGinkgo } from "./ginkgo.ts";
import { runInGuest } from "./suite-guest.ts";
import { baseConfiguration, startReadOnlyPort, suiteFlags, writeKubelet } from "./node-agent.ts";
import { startNodeRig } from "./node-rig.ts";
import { offerPrivateImage } from "./private-image.ts";
import { prepareFolder, type RunSuite } from "./suite-run.ts";

/** The suite of a node alone. It starts an API server, and the agent itself as a program that is called `kubelet`. */
export const runE2eNode: RunSuite = async (run) => {
  const { provider } = run;
  if (provider === "guest") return runInGuest(run);
  const { suite, reports } = prepareFolder(run, "e2e_node.test");
  await using rig = await startNodeRig("conformance-node", provider);
  // Before all of it goes, however the run ends.
  using atEnd = new DisposableStack();
  atEnd.defer(() => cpSync(rig.logs, join(run.folder, "logs"), { recursive: true }));
  atEnd.defer(keepHugePages());
  const binaries = join(run.folder, "bin");
  writeKubelet(binaries, run.agent, rig);
  const programs = join(run.folder, "stand-ins");
  const units = join(run.folder, "units");
  linkStandIns(programs);
  await using started = new AsyncDisposableStack();
  started.defer(() => stopUnits(programs, units));
  if (run.agent === "graftlet") started.use(startReadOnlyPort((argv) => rig.argv(argv, "/")));
  const config = join(run.folder, "base-config.yaml");
  writeFileSync(config, stringify(baseConfiguration(rig)));
  const { flags, env: suiteEnv } = await offerPrivateImage(rig.layout, run);
  return await runGinkgo({
    ginkgo: join(run.programs, "ginkgo"),
    suite,
    description: "E2eNode Suite",
    names: run.names,
    processes: run.processes ?? 5,
    args: suiteFlags(rig, { binaries, config, reports }, run.names, flags),
    env: suiteEnv,
    folder: run.folder,
    start(argv, { env, ...options }) {
      const PATH = `${programs}:${process.env.PATH ?? ""}`;
      return start(rig.argv(argv, run.folder), {
        ...options,
        cwd: "/",
        env: { ...env, PATH, STAND_IN_UNITS: units },
      });
    },
    ended: run.ended,
    limits: run.limits,
  });
};

/** Gives the machine back the huge pages that it has now: tests of the memory manager leave some, and other memory is short by them. */
function keepHugePages(): () => void {
  const file = "/proc/sys/vm/nr_hugepages";
  if (!existsSync(file)) return () => undefined;
  const before = readFileSync(file);
  return () => writeFileSync(file, before);
}

/** Puts stand-ins for systemd's programs into a folder: no systemd runs here, and tests that restart the agent do it through systemd. */
function linkStandIns(folder: string): void {
  mkdirSync(folder);
  for (const name of ["systemd-run", "systemctl", "journalctl", "sudo"])
    symlinkSync(join(import.meta.dirname, "stand-ins", "systemd.sh"), join(folder, name));
}

/** Ends what the stand-ins have started and the suite has left. */
async function stopUnits(programs: string, units: string): Promise<void> {
  for (const name of existsSync(units) ? readdirSync(units) : [])
    await must([join(programs, "systemctl"), "stop", name], { env: { ...process.env, STAND_IN_UNITS: units } });
}
