import { appendFileSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Cluster } from "./cluster.ts";
import { listProcesses, type ProcessEntry, textOf } from "./processes.ts";
import { buildGvisor } from "./tools.ts";

/** The handler of gVisor's runtime class. */
export const gvisorHandler = "runsc";

/** Gives a cluster's containerd, which is not Debian's, a handler that runs pods in gVisor, and starts it again.
 *  @see https://gvisor.dev/docs/user_guide/containerd/configuration/ */
export async function addGvisor(cluster: Cluster): Promise<void> {
  const programs = await buildGvisor((line) => console.error(line));
  const folder = join(cluster.layout.containerd, "gvisor");
  mkdirSync(folder);
  // containerd and the shim look at the shim's name.
  const shim = join(folder, "containerd-shim-runsc-v1");
  symlinkSync(join(programs, "shim"), shim);
  const settings = join(folder, "runsc.toml");
  writeFileSync(settings, `binary_name = "${join(programs, "runsc")}"\nroot = "${join(folder, "state")}"\n`);
  const handler = `plugins."io.containerd.cri.v1.runtime".containerd.runtimes.${gvisorHandler}`;
  const section = `[${handler}]
  runtime_type = "io.containerd.runsc.v1"
  runtime_path = "${shim}"
[${handler}.options]
  TypeUrl = "io.containerd.runsc.v1.options"
  ConfigPath = "${settings}"
`;
  appendFileSync(join(cluster.layout.containerd, "config.toml"), section);
  await cluster.killRuntime();
  await cluster.startRuntime();
}

/** The processes that are the kernels of a cluster's pods in gVisor. */
export function sentries({ layout }: Cluster): readonly ProcessEntry[] {
  return listProcesses().filter(({ pid }) => {
    const words = textOf(`/proc/${pid}/cmdline`).split("\0");
    return words[0] === "runsc-sandbox" && words.some((word) => word.includes(layout.containerd));
  });
}
