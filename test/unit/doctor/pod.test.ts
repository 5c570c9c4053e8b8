import assert from "node:assert/strict";
import { test } from "node:test";
import { examinePod, podOf } from "../../../src/doctor/pod.ts";
import type { DaemonSets } from "../../../src/pod/daemon-sets.ts";
import type { Target, TargetNetwork } from "../../../src/seams/provider.ts";
import { never } from "../../fakes/signals.ts";

const spec = { containers: [{ name: "c", image: "busybox" }], dnsPolicy: "Default" };
const agent = (annotations = {}, more = {}) => ({
  kind: "DaemonSet",
  metadata: { name: "agent" },
  spec: { template: { metadata: { annotations }, spec: { ...spec, ...more } } },
});

/** The doctor's findings for a manifest on a node. */
async function saidOf(
  manifest: Readonly<Record<string, unknown>>,
  daemonSets: DaemonSets | undefined,
  network?: TargetNetwork,
): Promise<readonly string[]> {
  const target = { runtime: {}, ...(network && { network }) } as Target;
  const place = { daemonSets, rootDir: "/var/lib/kubelet", cpuCfsQuota: true };
  const findings = await examinePod(podOf(manifest), target, place, never);
  return findings.map(({ level, reason = "", message }) => `${level} ${reason} ${message}`);
}

test("reports whether pods of a DaemonSet would run, with the remedy", async () => {
  const whole = ["ok  all of its fields are supported"];
  assert.deepEqual(await saidOf(agent(), "none"), [
    "warning NotRunByGraftlet it would be a placeholder that does not run (daemonSets: none): set daemonSets: selected or all",
  ]);
  assert.match(
    (await saidOf(agent(), undefined, { isolated: true })).join(),
    /^warning NotRunByGraftlet [^]*\(daemonSets: none, the default of a new node with a separate pod network\)/,
  );
  assert.match((await saidOf(agent(), "selected")).join(), /annotate its template with graftlet\.dev\/run: "true"$/);
  assert.deepEqual(await saidOf(agent({ "graftlet.dev/run": "true" }), "selected"), whole);
  const volumes = [{ name: "v", hostPath: { path: "/var/lib/kubelet/plugins_registry" } }];
  assert.deepEqual(await saidOf(agent({}, { volumes }), "selected"), whole);
  assert.deepEqual(await saidOf(agent(), undefined), whole);
  assert.deepEqual(await saidOf({ ...agent(), kind: "Deployment" }, "none"), whole);
});
