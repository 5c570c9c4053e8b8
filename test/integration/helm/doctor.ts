import assert from "node:assert/strict";
import type { FleetReport } from "../../../src/commands/doctor-fleet.ts";
import type { Cluster } from "../../harness/cluster.ts";
import { inNamespace } from "./release.ts";

/** Has graftlet doctor in the release's Pod check its two objects.
 *  @param objects.served whose machine is a node. @param objects.refused which cannot be served as it is. */
export async function doctorKnows(
  cluster: Cluster,
  { served, refused }: { readonly served: string; readonly refused: string },
): Promise<void> {
  const program = ["exec", inNamespace, "deploy/edge-graftlet", "--", "graftlet", "doctor"];
  const flags = ["--nodes", "/etc/graftlet/configuration/nodes.yaml", "--cert-dir", "/var/lib/graftlet/pki"];
  const doctor = (...more: readonly string[]) =>
    cluster.kubectl([...program, ...flags, ...more], { timeoutMs: 100_000 });
  const { code, stdout, stderr } = await doctor("-o", "json");
  assert.match(stdout, /^\{/, stderr);
  const { nodes } = JSON.parse(stdout) as { readonly nodes: readonly FleetReport[] };
  const found = new Map(nodes.map(({ node, findings }) => [node, findings]));
  assert.deepEqual([...found.keys()], [served, refused]);
  const fine = found.get(served)?.filter(({ level }) => level === "ok");
  for (const part of ["GraftedNode", "link", "runtime", "other agents", "certificates", "kubelet API"])
    assert.ok(
      fine?.some(({ check }) => check === part),
      `${part}: ${stdout}`,
    );
  assert.deepEqual(
    found.get(refused)?.map(({ check, level, reason }) => [check, level, reason]),
    [["GraftedNode", "failure", "InvalidConfiguration"]],
  );
  assert.equal(code, 1, stderr);
  const one = await doctor("--node", served);
  assert.match(one.stdout, /^node \S+\n {2}ok +GraftedNode +the Node is Ready\n {2}ok +link +host key, login/);
  assert.ok(one.stdout.startsWith(`node ${served}\n`) && !one.stdout.includes(refused), one.stdout);
  assert.equal(one.code, 0, one.stdout + one.stderr);
}
