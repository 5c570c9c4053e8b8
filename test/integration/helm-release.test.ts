import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { publishDraft } from "../../tools/release/draft.ts";
import { type LoopbackRegistry, startLoopbackRegistry } from "../../tools/release/loopback.ts";
import type { Published } from "../../tools/release/making.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { firstBlocks, followReadme } from "./helm/readme.ts";
import { inNamespace, type Release, releaseOf } from "./helm/release.ts";
import { podsOf } from "./helm/workload.ts";

describe("a new user with a cluster, an SSH login and a published release", { timeout: 1_800_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-release-test-"));
  const say = (line: string) => console.error(line);
  let lab: HelmLab;
  let edge: Release;
  let shop: LoopbackRegistry;
  let published: Published;
  const listed = (kinds: string) => lab.cluster.mustKubectl(["get", kinds, inNamespace, "--output=yaml"]);

  before(async () => {
    lab = await startHelmLab("helm-release", { bare: true, withoutImage: true, say });
    edge = releaseOf(lab);
    const { cluster, program } = lab;
    shop = await startLoopbackRegistry(cluster, program);
    published = await publishDraft({ ...shop, tools: cluster.tools, folder, say });
  });
  after(async () => {
    await lab?.[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  });

  test("starts a pod and gets its log and a shell with two commands from the README", async () => {
    assert.equal(firstBlocks().done.length, 2);
    await followReadme({ lab, chart: `oci://${published.chart}`, released: true, explain: edge.log });
    const pod = await lab.cluster.mustKubectl([
      "get",
      "pod",
      "hello",
      "--output=jsonpath={.spec.nodeName} {.status.phase}",
    ]);
    assert.equal(pod, `${release.node} Running`);
  });

  test("runs the release's image by digest, as pulled by the node's runtime", async () => {
    const [pod] = await edge.pods();
    assert.equal(pod?.spec.containers[0]?.image, `${published.image}@${published.imageDigest}`);
    assert.equal(pod?.status?.containerStatuses?.[0]?.imageID, `${published.image}@${published.imageDigest}`);
  });

  test("runs a Deployment with a node selector on the machine, within reach of kubectl", async () => {
    await edge.runWorkload();
    for (const pod of await podsOf(lab.cluster, "web")) assert.equal(pod.spec.nodeName, release.node);
    await edge.reachIn();
    assert.match(await lab.mustHelm(["test", release.name, inNamespace, "--timeout=120s"]), /Phase:\s+Succeeded/);
  });

  test("keeps the login key only in Secrets, and deletes it with the release", async () => {
    const key = lab.edge.login["ssh-privatekey"].split("\n")[1] ?? "";
    const encoded = Buffer.from(lab.edge.login["ssh-privatekey"]).toString("base64");
    assert.ok((await listed("secrets")).includes(encoded));
    for (const text of [await listed("configmaps,deployments,pods"), await edge.log()])
      assert.ok(key !== "" && !text.includes(key) && !text.includes(encoded));
    await lab.mustHelm(["uninstall", release.name, inNamespace, "--wait"]);
    assert.equal(await lab.cluster.mustKubectl(["get", "secrets", inNamespace, "--output=name"]), "");
  });
});
