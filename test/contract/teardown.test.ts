import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { cgroupHierarchies, createMachineCgroup } from "../harness/cgroups.ts";
import { clusterName } from "../harness/cluster.ts";
import { firstLine, identify, isAlive, start } from "../harness/processes.ts";
import { layoutOf, takeLease } from "../harness/state.ts";
import { tearDown } from "../harness/teardown.ts";
import { traces } from "../harness/traces.ts";

test("tearing a cluster down ends a pod's process whose network namespace no runtime's folder has", async () => {
  const layout = layoutOf(clusterName("teardown", "cri"));
  await tearDown(layout);
  assert.ok(
    takeLease(layout, { nodeName: "n", provider: "cri", containerd: "1.6", docker: "20.10", privatePassword: "p" }),
  );
  createMachineCgroup(layout);
  const child = start(["unshare", "--net", "sh", "-c", "echo ready; exec sleep 600"]);
  try {
    await firstLine(child);
    const process = identify(child.pid ?? 0);
    assert.ok(process);
    for (const hierarchy of cgroupHierarchies())
      writeFileSync(join(hierarchy, layout.cgroup, "cgroup.procs"), String(process.pid));
    await tearDown(layout);
    assert.equal(isAlive(process), false);
    assert.deepEqual(traces(layout), []);
  } finally {
    child.kill("SIGKILL");
  }
});
