import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { startDns } from "../harness/dns.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { images } from "../harness/pods.ts";
import { inNamespace, type Release, releaseOf } from "./helm/release.ts";
import { addressOf, server, service } from "./helm/tunnel.ts";
import { placed } from "./helm/workload.ts";

describe("network: auto on a machine whose Docker Engine runs the pods", { timeout: 600_000 }, () => {
  let lab: HelmLab;
  let edge: Release;

  const said = async (pod: string, script: string) =>
    (await lab.cluster.mustKubectl(["exec", pod, "--", "bash", "-c", script])).trim();
  const docker = (...argv: readonly string[]) =>
    lab.edge.mustInside(["docker", "--host=unix:///run/docker.sock", ...argv]);

  before(async () => {
    const say = (line: string) => console.error(line);
    lab = await startHelmLab("tunnel-docker", { machine: "ssh-docker", networkLeftOut: true, say });
    const { cluster } = lab;
    await Promise.all([startDns(cluster), cluster.apply([server("web"), service("web")])]);
    edge = releaseOf(lab);
    await edge.install();
    await cluster.apply([server("far", placed)]);
    await cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/web", "pod/far", "--timeout=90s"]);
  });
  after(() => lab?.[Symbol.asyncDispose]());

  const isolation = async () =>
    (await edge.node())?.status?.conditions?.find(({ type }) => type === "PodNetworkIsolated");
  const rules = () => lab.edge.mustInside(["nft", "list", "ruleset"]);
  const uninstall = () => lab.mustHelm(["uninstall", release.name, inNamespace, "--timeout=5m"]);
  /** Takes the release away, and what it has on the machine. */
  const drain = async () => {
    await lab.mustHelm(["upgrade", ...lab.told, "--set=onUninstall=drain"]);
    await uninstall();
  };

  test("a new node is tunneled by default", async () => {
    assert.equal(await isolation(), undefined);
    assert.match(await rules(), /table ip graftlet-/);
  });

  test("names resolve, and connections and datagrams reach Services", async () => {
    assert.equal(await said("far", "curl --silent --max-time 10 http://web/hostname"), "web");
    assert.equal(await said("far", "exec 3<>/dev/udp/web/81; echo hostname >&3; timeout 5 head -c 3 <&3"), "web");
    const version = "curl --silent --insecure --max-time 10 https://kubernetes.default/version";
    assert.match(await said("far", version), /"major": "1"/);
  });

  test("a container that is not a pod of the node does not reach the tunnel, even on its network", async () => {
    const web = await addressOf(lab.cluster, "web");
    const ask = `curl --silent --max-time 2 http://${web}/hostname; echo $?`;
    for (const network of ["bridge", `graftlet-${release.node}`]) {
      const answer = await docker("run", "--rm", `--network=${network}`, "--entrypoint=sh", images.agnhost, "-c", ask);
      assert.match(answer, /^\d+\n$/, network);
      assert.notEqual(answer.trim(), "0", network);
    }
  });

  test("a new node is isolated if its target lacks a requirement of the tunnel, and the condition names it", async () => {
    await drain();
    await lab.edge.mustInside(["mount", "--bind", "/dev/null", "/usr/sbin/nft"]);
    await edge.install();
    await lab.edge.mustInside(["umount", "/usr/sbin/nft"]);
    const { reason, message = "" } = (await isolation()) ?? {};
    assert.equal(reason, "ServiceTunnelUnavailable");
    assert.match(message, /When the node was created, nft does not work on the target: install nftables/);
  });

  test("an isolated node stays isolated, whether or not the chart sets it", async () => {
    await drain();
    await edge.install("--set=nodes[0].ssh.network=isolated");
    const rights = () => lab.cluster.mustKubectl(["get", "clusterrole", "-oname"]);
    await lab.mustHelm(["upgrade", ...lab.told]);
    assert.doesNotMatch(await rights(), /\.endpoints/, "an upgrade gives the account no more rights");
    await uninstall();
    await edge.install("--wait", "--timeout=120s");
    assert.match(await rights(), /\.endpoints/);
    assert.equal((await isolation())?.reason, "TargetNetworkOnly");
    assert.doesNotMatch(await rules(), /table ip graftlet-/);
  });
});
