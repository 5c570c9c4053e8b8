import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Finding } from "../../src/doctor/findings.ts";
import { networksIn } from "../../src/host/networks.ts";
import { sandboxImage } from "../harness/containerd-config.ts";
import { commandLine } from "../harness/graftlet-run.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { shell } from "../harness/pods.ts";
import { run } from "../harness/processes.ts";
import { isRemote } from "../harness/runtime-daemon.ts";

describe("graftlet doctor on a running node", { timeout: 300_000 }, () => {
  let lab: Lab;
  let program: readonly string[];
  let flags: readonly string[];

  /** The command line that the node was started with, and more; the administrator's kubeconfig in place of the node's. */
  const doctor = async (...more: readonly string[]) => {
    const own = flags.filter((flag) => !flag.startsWith("--kubeconfig"));
    const admin = `--kubeconfig=${lab.cluster.adminKubeconfig}`;
    return beside([...program, "doctor", ...own, admin, ...more]);
  };
  /** Runs a command where graftlet runs: with its files, too. */
  const beside = (argv: readonly string[]) =>
    run(["nsenter", `--target=${lab.agent.pid}`, "--mount", "--uts", "--net", "--", ...argv], { timeoutMs: 60_000 });
  const found = async () => {
    const { stdout } = await doctor("-o", "json");
    const { nodes } = JSON.parse(stdout) as { nodes: { node: string; findings: Finding[] }[] };
    assert.deepEqual(
      nodes.map(({ node }) => node),
      [lab.cluster.nodeName],
    );
    return nodes[0]?.findings ?? [];
  };

  before(async () => {
    lab = await startLab("doctor");
    ({ program, flags } = commandLine(lab.agent));
    await lab.pods.create("talks", { containers: [shell("echo here; sleep infinity")] });
    await lab.pods.ready("talks");
  });
  after(() => lab?.[Symbol.asyncDispose]());

  test("reports success with a line for each part and exit code 0", async () => {
    const { code, stdout, stderr } = await doctor();
    assert.equal(code, 0, stdout + stderr);
    const checks = [
      "link",
      "rights",
      "machine",
      "swap",
      "cgroups",
      "runtime",
      "disk",
      "clock",
      "other agents",
      "ports",
    ];
    for (const check of [
      ...checks,
      "certificates",
      "API server",
      "CIDRs",
      "node",
      "lease",
      "kubelet API",
      "logs",
      "exec",
    ])
      assert.match(stdout, new RegExp(`^  (ok|warning) +${check} `, "m"));
    assert.match(stdout, /logs +read the log of default\/talks/);
    assert.match(stdout, /exec +ran the command true in default\/talks/);
    assert.match(
      stdout,
      new RegExp(`ports +kubelet API, port 10250 on .*: graftlet serves it \\(process ${lab.agent.pid}\\)`),
    );
    assert.match(stdout, /certificates +the kubelet API's: valid until 20/);
    assert.match(stdout, /CIDRs +Services [\d./]+; .*; no network of the target overlaps/);
    assert.match(stdout, /node +Ready|node +PodNetworkIsolated/);
    assert.match(stdout, isRemote(lab.cluster.provider) ? /connected in \d+ ms/ : /the target is this machine/);
  });

  test("checks the pod network although the pod's image has no suitable program", async () => {
    await lab.pods.create("bare", { containers: [{ image: sandboxImage, command: undefined }] });
    await lab.pods.ready("bare");
    const exec = (await found()).find(({ check }) => check === "exec");
    assert.equal(exec?.level, "ok", JSON.stringify(exec));
    assert.match(exec.message, /reached the runtime of default\/bare, whose image has no command true/);
    await lab.pods.remove("bare");
    await lab.pods.gone("bare");
  });

  test("reports a pod network that overlaps with the cluster's", async () => {
    const [network] = networksIn(await lab.cluster.mustRunInside(["cat", "/proc/net/route"]), "");
    assert.ok(network);
    const path = "/apis/networking.k8s.io/v1/servicecidrs";
    const kind = { apiVersion: "networking.k8s.io/v1", kind: "ServiceCIDR", metadata: { name: "of-the-target" } };
    await lab.pods.api.create(path, { ...kind, spec: { cidrs: [network.cidr] } });
    const cidrs = (await found()).find(({ check }) => check === "CIDRs");
    assert.equal(cidrs?.level, "warning", JSON.stringify(cidrs));
    assert.ok(
      cidrs.message.startsWith(`${network.cidr} (${network.device}) of the target overlaps with`),
      cidrs.message,
    );
    await lab.pods.api.remove(`${path}/of-the-target`);
  });

  test("checks a manifest for fields that would hold the pod", async () => {
    const manifest = async (name: string, spec: object) => {
      const file = join(lab.cluster.layout.dir, `${name}.json`);
      const template = { spec: { containers: [{ name: "c", image: "x" }], ...spec } };
      writeFileSync(
        file,
        JSON.stringify({ apiVersion: "apps/v1", kind: "Deployment", metadata: { name }, spec: { template } }),
      );
      return beside([...program, "doctor", "pod", file, ...flags]);
    };
    const plain = await manifest("plain", {});
    assert.match(plain.stdout, /(ok|warning) +pod plain/);
    assert.equal(plain.code, 0, plain.stdout + plain.stderr);
    const fc = { targetWWNs: ["500a0982991b8dc5"], lun: 0 };
    const other = await manifest("other", { volumes: [{ name: "data", fc }] });
    const held = "UnsupportedField: it would be held because of spec.volumes[0].fc: ";
    assert.ok(other.stdout.includes(`${held}no volume plugin matched: volume "data" of type fc`), other.stdout);
    assert.match(other.stdout, /FAILURE +pod other /);
    assert.equal(other.code, 1);
    const { code, stderr } = await beside([...program, "doctor", "pod", "/nowhere", ...flags]);
    assert.equal(code, 1);
    assert.match(stderr, /doctor pod is .*nowhere.*there is no such file/);
  });

  test("reports a stopped runtime, with exit code 1", async () => {
    await lab.cluster.killRuntime();
    const findings = await found();
    for (const part of ["runtime", "exec"])
      assert.equal(findings.find(({ check }) => check === part)?.level, "failure", part);
    assert.equal((await doctor()).code, 1);
    await lab.cluster.startRuntime();
  });

  test("reports a missing node, and an API server that does not answer", async () => {
    const absent = await doctor("--hostname-override=nobody", "--page-port=4195");
    assert.match(absent.stdout, /node +nobody is not registered yet/);
    assert.match(absent.stdout, /ports +page, port 4195 on 127\.0\.0\.1: free/);
    const holder = `process ${lab.agent.pid} \\(node\\) listens there`;
    assert.match(absent.stdout, new RegExp(`FAILURE +ports +port 10250 is taken on .*; ${holder}`));
    const other = await doctor(`--kubeconfig=${lab.cluster.adminKubeconfig}`, "--kubeconfig=/nowhere");
    assert.equal(other.code, 1);
    assert.match(other.stderr + other.stdout, /kubeconfig/);
  });
});
