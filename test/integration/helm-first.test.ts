import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { chart } from "../harness/helm.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { inNamespace, type Release, releaseOf } from "./helm/release.ts";

describe("helm install in a cluster whose first node is run by graftlet instead of the kubelet", {
  timeout: 1_800_000,
}, () => {
  let lab: HelmLab;
  let edge: Release;

  before(async () => {
    lab = await startHelmLab("helm-first", { firstNode: "graftlet", say: (line) => console.error(line) });
    edge = releaseOf(lab);
  });
  after(() => lab?.[Symbol.asyncDispose]());

  test("a release without nodes installs, says what to configure, and uninstalls", async () => {
    const at = ["--namespace=bare", "--timeout=60s"];
    const said = await lab.mustHelm(["install", "bare", chart, ...at, "--create-namespace", "--wait"]);
    assert.match(said, /Release bare has no node yet[^]*nodes\.edge-1\.ssh\.host=/);
    assert.equal((await lab.cluster.mustKubectl(["get", "pods", "--namespace=bare"])).trim(), "");
    for (const entry of ["nodes.edge-9", "nodes[0].name=edge-9,nodes[0]"]) {
      const set = `--set=${entry}.ssh.host=192.0.2.7,${entry.split(",").at(-1)}.ssh.existingSecret=edge-9-ssh`;
      const done = await lab.helm(["upgrade", "bare", chart, ...at, "--reuse-values", "--dry-run=server", set]);
      assert.deepEqual([done.code, done.stderr], [0, ""]);
      assert.match(done.stdout, /Release bare serves edge-9\./);
    }
    await lab.mustHelm(["uninstall", "bare", ...at, "--wait"]);
  });

  test("the first graftlet node runs the release's Pod, which runs the pods of a second node", async () => {
    await edge.install();
    await edge.runWorkload();
    await edge.reachIn();
    assert.match(await lab.mustHelm(["test", release.name, inNamespace, "--timeout=120s"]), /Phase:\s+Succeeded/);
  });

  test("a rollout does not disturb the node's pods", () =>
    edge.unnoticed(() =>
      lab.cluster.mustKubectl(["rollout", "restart", `deployment/${release.name}-graftlet`, inNamespace]),
    ));

  test("uninstall with drain leaves nothing behind", async () => {
    await lab.mustHelm(["upgrade", ...lab.told, "--set=onUninstall=drain", "--wait", "--timeout=120s"]);
    await lab.mustHelm(["uninstall", release.name, inNamespace, "--timeout=180s"]);
    await edge.isGone();
    assert.equal(await edge.node(), undefined);
  });
});
