import type { CgroupDriver } from "../../src/pod/cgroup-path.ts";
import { units } from "../machines/units.ts";
import type { Cluster } from "./cluster.ts";
import { writeContainerdConfig } from "./containerd.ts";
import { writeDockerConfig } from "./docker.ts";
import { runtimeDaemons } from "./runtime-daemon.ts";

/** Has the machine's systemd restart the runtime of a cluster, which from then on makes cgroups in this way. */
export async function changeDriver(cluster: Cluster, driver: CgroupDriver): Promise<void> {
  const { layout, provider } = cluster;
  const { role } = runtimeDaemons[provider];
  const unit = units[role];
  if (unit === undefined) throw new Error(`a machine has no unit for ${role}`);
  await cluster.mustRunInside(["systemctl", "stop", unit]);
  if (role === "dockerd") writeDockerConfig(layout, { driver });
  else writeContainerdConfig(layout, driver);
  await cluster.startRuntime();
}
