import assert from "node:assert/strict";
import { chmodSync, chownSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { stringify } from "yaml";
import { type Agent, kubeletConfiguration, startGraftlet } from "../harness/agent.ts";
import { hasResourceCapability } from "../harness/capabilities.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type DockerEngine, dockerEngine } from "../harness/docker-engine.ts";
import { untilReadiness } from "../harness/docker-lab.ts";
import { startEngineImpostor } from "../harness/engine-impostor.ts";
import { runToEnd } from "../harness/graftlet-run.ts";
import { addresses } from "../harness/namespaces.ts";
import { openPods, type Pods, shell, statusOf } from "../harness/pods.ts";

// Each way in which there is no Docker Engine to use is one sentence with the remedy in the node's Ready condition, and ends by
// itself when there is one.
describe("an unusable Docker Engine", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let engine: DockerEngine;
  let pods: Pods;
  let agent: Agent | undefined;
  let socket: string;

  before(async () => {
    cluster = await startCluster({ name: "engine-unfit", provider: "docker" });
    engine = dockerEngine(cluster);
    pods = await openPods(cluster);
    socket = cluster.layout.dockerSocket;
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await agent?.[Symbol.asyncDispose]();
    agent = undefined;
  });

  const begin = async (through: readonly string[] = []) => {
    agent = await startGraftlet(cluster, { untilReady: false, through });
    return agent;
  };
  /** A Ready condition of one sentence: nothing after its full stop. */
  const unready = (sentence: string) => new RegExp(`^False KubeletNotReady container runtime is down: ${sentence}$`);
  const untilOf = async (pattern: RegExp) => {
    const took = await untilReadiness(cluster, pattern);
    assert.ok(agent?.isRunning(), "graftlet has ended");
    return took;
  };
  /** A pod on the node runs, which was created while it could not. */
  const runs = async (name: string) => {
    await pods.ready(name);
    await Promise.all([pods.gone(name), pods.remove(name, 0)]);
  };

  test("reports a missing socket, then a socket without a daemon, and becomes Ready with the daemon", async (t) => {
    await cluster.killRuntime();
    rmSync(socket, { force: true });
    await begin();
    const sentence = `no Docker Engine responds at ${socket}: start it \\(systemctl start docker\\), or set providerConfig\\.socket to its socket\\.`;
    await untilOf(unready(sentence));
    // The first pods of a daemon that has not even the sandbox image yet.
    const early = { nodeName: cluster.nodeName, tolerations: [{ operator: "Exists" }] };
    await pods.create("patient", early);
    await pods.create("bold", {
      ...early,
      containers: [shell("sleep 3600", { securityContext: { privileged: true } })],
    });
    await engine.start({ privileged: false });
    t.diagnostic(`Ready ${Math.round(await untilOf(/^True /))} ms after the daemon answered`);
    await runs("patient");
    if (hasResourceCapability()) return runs("bold");
    const held = /securityContext\.privileged \(.*cannot start privileged containers/;
    await pods.event("bold", "UnsupportedField", held);
    assert.ok(pods.history("bold").every((pod) => statusOf(pod)?.containerID === undefined));
    await Promise.all([pods.gone("bold"), pods.remove("bold", 0)]);
  });

  test("rejects a daemon that is too old, until a newer one replaces it", async (t) => {
    await cluster.killRuntime();
    rmSync(socket, { force: true });
    const old = await startEngineImpostor(socket, { Version: "19.03.15", ApiVersion: "1.40", MinAPIVersion: "1.12" });
    try {
      await begin();
      const sentence = `the Docker Engine at ${socket} is version 19\\.03\\.15 with API 1\\.12 to 1\\.40: upgrade it to Docker Engine 20\\.10 \\(API 1\\.41\\) or newer for graftlet to run pods on it\\.`;
      await untilOf(unready(sentence));
    } finally {
      await old[Symbol.asyncDispose]();
    }
    await engine.start();
    t.diagnostic(`Ready ${Math.round(await untilOf(/^True /))} ms after the daemon answered`);
  });

  test("rejects an engine that is not Docker, until a Docker Engine replaces it", async () => {
    await cluster.killRuntime();
    rmSync(socket, { force: true });
    const podman = {
      Version: "5.4.2",
      ApiVersion: "1.41",
      MinAPIVersion: "1.24",
      Components: [{ Name: "Podman Engine" }],
    };
    const other = await startEngineImpostor(socket, podman);
    try {
      await begin();
      await untilOf(
        unready(
          `the server at ${socket} identifies itself as "Podman Engine", and graftlet supports only the Docker Engine: .*`,
        ),
      );
    } finally {
      await other[Symbol.asyncDispose]();
    }
    await engine.start();
    await untilOf(/^True /);
  });

  test("rejects a socket without permission until access is granted", async (t) => {
    // Root too needs the socket's group or owner once it has not the capability that passes permissions by.
    const powerless = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"];
    chownSync(socket, 65_534, 65_534);
    chmodSync(socket, 0o600);
    await begin(powerless);
    const sentence = `permission denied on the Docker socket ${socket}: add the user that graftlet runs as to the socket's group \\(docker\\), or run graftlet as root\\.`;
    await untilOf(unready(sentence));
    chmodSync(socket, 0o666);
    t.diagnostic(`Ready ${Math.round(await untilOf(/^True /))} ms after it was opened up`);
    chownSync(socket, 0, 0);
    chmodSync(socket, 0o660);
  });

  test("refuses to start with an invalid configuration field, and reports it in one sentence", async () => {
    const kubelet = join(cluster.layout.dir, "sound.yaml");
    writeFileSync(kubelet, stringify(kubeletConfiguration(cluster)));
    const kubeconfig = await cluster.kubeconfigFor(cluster.nodeName);
    const refused = async (fields: object, sentence: RegExp) => {
      const file = join(cluster.layout.dir, "wrong.yaml");
      writeFileSync(file, stringify(fields));
      const { code, said } = await runToEnd(cluster, [
        `--config=${kubelet}`,
        `--kubeconfig=${kubeconfig}`,
        `--hostname-override=${cluster.nodeName}`,
        `--root-dir=${cluster.layout.kubeletRoot}`,
        `--node-ip=${addresses.node}`,
        "--provider=docker",
        `--provider-config=${file}`,
      ]);
      assert.equal(said.length, 1, said.join("\n"));
      assert.match(said[0] ?? "", sentence);
      assert.equal(code, 1);
    };
    await refused(
      { sockets: "/x" },
      /providerConfig\.sockets is not a field of the docker provider: remove it \(its fields are socket, /,
    );
    await refused(
      { socket: "tcp://10.0.0.1:2375" },
      /providerConfig\.socket is "tcp:\/\/10\.0\.0\.1:2375", .*unix:\/\/\/var\/run\/docker\.sock .*\.$/,
    );
    await refused({ network: "host" }, /providerConfig\.network is "host", .*name a bridge network\.$/);
    await refused({ podCIDR: "10.0.0.0" }, /providerConfig\.podCIDR is "10\.0\.0\.0", .*10\.88\.0\.0\/24\.$/);
    await refused({ sandboxImage: "" }, /providerConfig\.sandboxImage is "", not the name of an image: /);
  });
});
