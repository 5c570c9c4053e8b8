import { join } from "node:path";
import type { GraftedNode } from "../../../src/fleet/grafted-node.ts";
import { createCgroup } from "../../harness/cgroups.ts";
import type { EdgeMachine } from "../../harness/edge-machine.ts";
import { release } from "../../harness/helm-lab.ts";
import { images } from "../../harness/pods.ts";

/** A GraftedNode of the release's namespace. All of them share one machine, each with directories and a cgroup of its own. */
export function graftedMachine(
  { ssh, kubeletConfiguration, layout }: EdgeMachine,
  name: string,
  more: Partial<GraftedNode["spec"]> = {},
) {
  const apart = { cgroupRoot: join(layout.cgroup, name), podLogsDir: join(layout.dir, `logs-${name}`) };
  createCgroup({ ...layout, cgroup: apart.cgroupRoot });
  return {
    apiVersion: "graftlet.dev/v1alpha1",
    kind: "GraftedNode",
    metadata: { name, namespace: release.namespace },
    spec: {
      ssh: { host: ssh["host"], port: ssh["port"], secretRef: { name: release.secret } },
      network: "isolated",
      kubeletConfiguration: { ...kubeletConfiguration, ...apart },
      ...more,
    },
  };
}

/** A pod that prints a line and runs on, on the node of that name. */
export function podOn(node: string) {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: `on-${node}` },
    spec: {
      nodeSelector: { "graftlet.dev/target": node },
      tolerations: [{ key: "graftlet.dev/target", operator: "Exists", effect: "NoSchedule" }],
      terminationGracePeriodSeconds: 1,
      containers: [{ name: "c", image: images.busybox, command: ["sh", "-c", "echo started; sleep 3600"] }],
    },
  };
}
