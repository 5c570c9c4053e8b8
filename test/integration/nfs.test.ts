import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { claim, persistentVolume, storageClass } from "../harness/claims.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { mount } from "../harness/manifests.ts";
import { shell } from "../harness/pods.ts";

let lab: Lab;
before(async () => {
  lab = await startLab("nfs");
});
after(() => lab?.[Symbol.asyncDispose]());

/** What a command says that must succeed in the guest. */
async function says(...argv: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await lab.cluster.runInside(argv);
  assert.equal(code, 0, `${argv.join(" ")}: ${stderr}`);
  return stdout.trim();
}

// The guest is the server, too.
test("mounts NFS for claims and inline volumes, read-only if requested, and unmounts it when the pod ends, even if the server is down", async () => {
  const { cluster, pods } = lab;
  await says("sh", "-c", "mkdir -p /srv/nfs && echo kept > /srv/nfs/file && chmod 777 /srv/nfs");
  await says("sh", "-c", "echo '/srv/nfs *(rw,fsid=0,no_subtree_check,insecure,no_root_squash)' > /etc/exports");
  await says("systemctl", "start", "nfs-server");
  const nfs = { server: "127.0.0.1", path: "/" };
  const mountOptions = ["vers=4.2", "soft", "timeo=30", "retrans=1"];
  const [readOnly, volumeMounts] = [true, [mount("v", { mountPath: "/v" })]];
  await cluster.apply([storageClass, persistentVolume("remote", { nfs, mountOptions }), claim("remote", "remote")]);
  const claimed = { volumes: [{ name: "v", persistentVolumeClaim: { claimName: "remote" } }] };
  const own = { volumes: [{ name: "v", nfs: { ...nfs, readOnly } }] };
  await pods.create("writes", {
    ...claimed,
    containers: [shell("cp /v/file /v/copy; exec sleep 3600", { volumeMounts })],
  });
  await pods.create("reads", {
    ...own,
    containers: [shell("cat /v/file; touch /v/x; exec sleep 3600", { volumeMounts })],
  });
  await pods.create("lost", {
    volumes: [{ name: "v", nfs: { ...nfs, path: "/nowhere" } }],
    containers: [shell("true", { volumeMounts })],
  });
  const [writes] = await Promise.all(["writes", "reads"].map(pods.ready));
  await cluster.waitFor("the copy", async () => (await says("cat", "/srv/nfs/copy")) === "kept");
  await pods.logged("reads", /^kept\ntouch: \/v\/x: Read-only file system/);
  const table = await says("grep", "kubernetes.io~nfs", "/proc/mounts");
  assert.match(
    table,
    new RegExp(`${writes?.metadata.uid}/volumes/kubernetes.io~nfs/remote nfs4 rw,.*\\bsoft\\b.*timeo=30`),
  );
  await pods.event(
    "lost",
    "FailedMount",
    /^MountVolume\.SetUp failed for volume "v" : mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs 127\.0\.0\.1:\/nowhere /,
  );
  const summary = ["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/stats/summary`];
  await cluster.waitFor(
    "the volume's space",
    async () => /"pvcRef":\{[^}]*"name":"remote"/.test(await cluster.mustKubectl(summary)),
    { everyMs: 2_000 },
  );
  const gone = ["writes", "reads", "lost"].map((name) => pods.gone(name));
  await says("systemctl", "stop", "nfs-server");
  for (const name of ["writes", "reads", "lost"]) await pods.remove(name, 1);
  await pods.create("other", { containers: [shell("exec sleep 3600")] });
  await pods.ready("other");
  await Promise.all(gone);
  assert.equal((await cluster.runInside(["grep", "kubernetes.io~nfs", "/proc/mounts"])).stdout, "");
  assert.equal(await says("cat", "/srv/nfs/file"), "kept");
});
