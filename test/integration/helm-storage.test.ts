import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { stringify } from "yaml";
import type { Pod } from "../../src/objects.ts";
import { nodeReady } from "../harness/agent.ts";
import { createCgroup } from "../harness/cgroups.ts";
import { claim } from "../harness/claims.ts";
import { csi, type CsiDriver, startCsiDriver } from "../harness/csi.ts";
import { startDns } from "../harness/dns.ts";
import { ownPodAddresses } from "../harness/edge-machine.ts";
import { type HelmLab, release, startHelmLab } from "../harness/helm-lab.ts";
import { mount } from "../harness/manifests.ts";
import { images, shell } from "../harness/pods.ts";
import { inNamespace, type Release, releaseOf } from "./helm/release.ts";
import { placed } from "./helm/workload.ts";

// A vendor's manifests as they are, on a machine over SSH: its DaemonSet mounts the paths below a kubelet's directory, the provisioner
// speaks to the API server over the link, and another node of the release has its root below that directory.

const kubeletRoot = "/var/lib/kubelet";
const below = { node: "edge-2", root: `${kubeletRoot}/beside` } as const;

describe("a vendor's CSI driver on a node of the chart", { timeout: 900_000 }, () => {
  let lab: HelmLab;
  let edge: Release;
  let driver: CsiDriver;

  before(async () => {
    lab = await startHelmLab("helm-storage", { say: (line) => console.error(line) });
    edge = releaseOf(lab);
    const { ssh, kubeletConfiguration: machine, layout } = lab.edge;
    ownPodAddresses(layout);
    // Of the machine's own, whatever else runs here, and on a disk; shared, as systemd has it.
    const own = 'mkdir -p "$1" "$2"; mount --bind "$1" "$2"; mount --make-shared "$2"';
    await lab.edge.mustInside(["sh", "-ec", own, "sh", join(layout.dir, "kubelet-root"), kubeletRoot]);
    const cgroupRoot = `${layout.cgroup}/second`;
    createCgroup({ ...layout, cgroup: cgroupRoot });
    const common = { identity: "serviceAccount", ssh: { ...ssh, existingSecret: release.secret } };
    const first = {
      ...common,
      name: release.node,
      rootDir: kubeletRoot,
      daemonSets: "selected",
      ssh: { ...common.ssh, network: "tunneled" },
      kubeletConfiguration: machine,
    };
    const second = {
      ...common,
      name: below.node,
      rootDir: below.root,
      ssh: { ...common.ssh, network: "isolated" },
      kubeletConfiguration: { ...machine, cgroupRoot, podLogsDir: join(layout.dir, "second-logs") },
    };
    writeFileSync(
      lab.values,
      stringify({ onUninstall: "drain", rbac: { allNamespaces: true }, nodes: [first, second] }),
    );
    await Promise.all([startDns(lab.cluster), edge.install()]);
    await nodeReady(lab.cluster, below.node);
  });
  after(() => lab?.[Symbol.asyncDispose]());

  const kubectl = (...args: readonly string[]) => lab.cluster.mustKubectl(args, { timeoutMs: 130_000 });
  const inside = (script: string) => lab.edge.mustInside(["sh", "-ec", script]);
  /** Content of the only volume with a table, where the driver keeps it. */
  const rows = () => {
    const [folder = ""] = readdirSync(driver.data).filter((name) => existsSync(join(driver.data, name, "table")));
    return readFileSync(join(driver.data, folder, "table"), "utf8");
  };
  const ready = (name: string) => kubectl("wait", "--for=condition=Ready", `pod/${name}`, "--timeout=90s");
  const pod = (name: string, spec: Partial<Pod["spec"]>): object => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name },
    spec: { terminationGracePeriodSeconds: 1, ...spec },
  });
  const using = (claimName: string, script: string) =>
    pod(claimName, {
      ...placed,
      volumes: [{ name: "v", persistentVolumeClaim: { claimName } }],
      containers: [{ name: "c", image: images.busybox, ...shell(script, { volumeMounts: [mount("v")] }) }],
    });

  test("the driver's DaemonSet runs and registers, and a claim's data are on its volume", async () => {
    await lab.cluster.apply([
      pod("beside", {
        nodeName: below.node,
        tolerations: placed.tolerations,
        volumes: [{ name: "v", emptyDir: {} }],
        containers: [
          {
            name: "c",
            image: images.busybox,
            ...shell("echo kept > /v/f; sleep 3600", { volumeMounts: [mount("v")] }),
          },
        ],
      }),
    ]);
    driver = await startCsiDriver(lab.cluster, {
      args: ["--enable-topology=false"],
      machine: { layout: { ...lab.edge.layout, kubeletRoot }, placed },
    });
    await lab.cluster.apply([claim("data", undefined, { storageClassName: csi.storageClass })]);
    await lab.cluster.apply([using("data", "echo row >> /v/table; sleep 3600")]);
    await ready("data");
    assert.match(await kubectl("get", "csinode", release.node, "-o=jsonpath={.spec.drivers[*].name}"), /hostpath/);
    assert.equal(rows(), "row\n");
    assert.match(await inside("cat /proc/self/mountinfo"), /\/var\/lib\/kubelet\/pods\/.*kubernetes\.io~csi/);
  });

  test("a later pod finds the data, and the host node is untouched although the driver can reach its root", async () => {
    await kubectl("delete", "pod", "data", "--timeout=60s");
    await lab.cluster.apply([using("data", "echo row >> /v/table; sleep 3600")]);
    await ready("data");
    assert.equal(await kubectl("exec", "data", "--", "cat", "/v/table"), "row\nrow\n");
    await ready("beside");
    assert.equal(await kubectl("exec", "beside", "--", "cat", "/v/f"), "kept\n");
    assert.match(await inside(`ls ${below.root}`), /pods/);
  });

  test("the claim's pod keeps running while graftlet's Pod is replaced", async () => {
    const { uid } = (await lab.cluster.get<Pod>("pod", "data"))?.metadata ?? {};
    await kubectl("rollout", "restart", `deployment/${release.name}-graftlet`, inNamespace);
    await kubectl("rollout", "status", `deployment/${release.name}-graftlet`, inNamespace, "--timeout=120s");
    await nodeReady(lab.cluster, release.node);
    const now = await lab.cluster.get<Pod>("pod", "data");
    assert.deepEqual([now?.metadata.uid, now?.status?.containerStatuses?.[0]?.restartCount], [uid, 0]);
    // Endpoints name the new Pod's address a moment after it is Ready.
    const said = await lab.cluster.waitFor(
      "the way to the pod",
      async () => {
        const { code, stdout } = await lab.cluster.kubectl(["exec", "data", "--", "cat", "/v/table"]);
        return code === 0 ? stdout : undefined;
      },
      { explain: edge.log },
    );
    assert.equal(said, "row\nrow\n");
  });

  test("helm uninstall with onUninstall: drain unmounts the volume, and leaves nothing below either root", async () => {
    await lab.mustHelm(["uninstall", release.name, inNamespace, "--timeout=240s"]);
    await edge.isGone();
    assert.doesNotMatch(await inside("cat /proc/self/mountinfo"), /\/var\/lib\/kubelet\/./);
    assert.equal(await inside(`find ${kubeletRoot} -mindepth 1 -path '*pods/*' -o -mindepth 1 -name table`), "");
    assert.equal(rows(), "row\nrow\n", "the data stays");
  });
});
