import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { nodeReady } from "../harness/agent.ts";
import { startDns } from "../harness/dns.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { images } from "../harness/pods.ts";
import { releaseOf } from "./helm/release.ts";
import { addressOf, server, service, tunneled } from "./helm/tunnel.ts";
import { placed } from "./helm/workload.ts";

describe("network: tunneled, where the Docker Engine runs the pods", { timeout: 600_000 }, () => {
  let lab: HelmLab;

  const said = async (pod: string, script: string) =>
    (await lab.cluster.mustKubectl(["exec", pod, "--", "bash", "-c", script])).trim();
  const docker = (...argv: readonly string[]) =>
    lab.edge.mustInside(["docker", "--host=unix:///run/docker.sock", ...argv]);

  before(async () => {
    lab = await startHelmLab("tunnel-docker", { machine: "ssh-docker", say: (line) => console.error(line) });
    const { cluster } = lab;
    await Promise.all([startDns(cluster), cluster.apply([server("web"), service("web")])]);
    await releaseOf(lab).install(...tunneled);
    await nodeReady(cluster, release.node);
    await cluster.apply([server("far", placed)]);
    await cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/web", "pod/far", "--timeout=90s"]);
  });
  after(() => lab?.[Symbol.asyncDispose]());

  test("names, connections and datagrams", async () => {
    assert.equal(await said("far", "curl --silent --max-time 10 http://web/hostname"), "web");
    assert.equal(await said("far", "exec 3<>/dev/udp/web/81; echo hostname >&3; timeout 5 head -c 3 <&3"), "web");
    const version = "curl --silent --insecure --max-time 10 https://kubernetes.default/version";
    assert.match(await said("far", version), /"major": "1"/);
  });

  test("a container that is no pod of the node's has no way, even on its network", async () => {
    const web = await addressOf(lab.cluster, "web");
    const ask = `curl --silent --max-time 2 http://${web}/hostname; echo $?`;
    for (const network of ["bridge", `graftlet-${release.node}`]) {
      const answer = await docker("run", "--rm", `--network=${network}`, "--entrypoint=sh", images.agnhost, "-c", ask);
      assert.match(answer, /^\d+\n$/, network);
      assert.notEqual(answer.trim(), "0", network);
    }
  });
});
