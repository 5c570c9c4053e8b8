import assert from "node:assert/strict";
import { test } from "node:test";
import * as cri from "../../../src/gen/cri.ts";
import { recordOwnFile, writeOwnershipRecord } from "../../../src/host/ownership-record.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { rivalCommand } from "../../fakes/flock.ts";
import { never } from "../../fakes/signals.ts";
import { fakeSystemd } from "../../fakes/systemd.ts";
import { cgroup, labels, link, logs, root, start, uid, volume } from "./removal-bench.ts";

test("keeps cgroups shared with another node on the same runtime", async () => {
  const t = await start({ sharing: "shared" });
  await using _other = await t.host.spawn(rivalCommand("/run/c", true));
  assert.equal(await t.remove(), true);
  assert.deepEqual([await isThere(t, cgroup), await isThere(t, "/sys/fs/cgroup/kubepods/burstable")], [false, true]);
});

const isThere = async ({ host }: Awaited<ReturnType<typeof start>>, path: string) =>
  host.fs.lstat(path).then(
    () => true,
    () => false,
  );

test("removes everything of the node in order and nothing else; a second run finds nothing", async () => {
  const t = await start();
  t.host.files.mount(volume, "tmpfs");
  assert.equal(await t.remove(), true);
  assert.deepEqual(await t.runtime.listPodSandbox(undefined, never), []);
  for (const path of [root, logs, link, cgroup, "/var/log/pods", "/var/log/containers", "/sys/fs/cgroup/kubepods"])
    assert.equal(await isThere(t, path), false, path);
  for (const path of ["/var/lib", "/var/log/syslog", "/precious/file", "/etc/os-release"])
    assert.equal(await isThere(t, path), true, path);
  assert.deepEqual(t.host.files.mounted(), []);
  const listed = t.said.filter((line) => line.startsWith("  "));
  assert.deepEqual(listed, [
    `  sandbox of pod default/web (${t.sandboxId.slice(0, 13)})`,
    `  mount ${volume}`,
    `  cgroup /kubepods/burstable/pod${uid}`,
    `  link ${link}`,
    `  directory ${logs}`,
    `  directory ${root}/pods/${uid}`,
    "  cgroup /kubepods/burstable, if empty",
    "  cgroup /kubepods, if empty",
    `  directory ${root}/graftlet`,
    `  directory ${root}/pods, if empty`,
    "  directory /var/log/containers, if empty",
    `  directory ${root}, if empty`,
    "  directory /var/log/pods, if empty",
  ]);
  assert.equal(t.said.at(-1), "if the Node object is still in the cluster: kubectl delete node n1");
  assert.equal(await t.remove(), true);
  assert.equal(t.said[0], "nothing of node n1 is left");
});

test("with systemd, stops the slices of pods and QoS classes only", async () => {
  const t = await start({ driver: cri.CgroupDriver.SYSTEMD });
  const { units } = await fakeSystemd(t.host, {});
  const escaped = uid.replaceAll("-", "_");
  const slices = ["kubepods", "kubepods-burstable", `kubepods-burstable-pod${escaped}`].map((name) => `${name}.slice`);
  for (const unit of [...slices, "kubepods-besteffort.slice", "kubepods-besteffort-other.slice"]) units.add(unit);
  for (const below of [slices.slice(1).join("/"), "kubepods-besteffort.slice/kubepods-besteffort-other.slice"])
    await t.host.fs.apply([{ kind: "mkdir", path: `/sys/fs/cgroup/kubepods.slice/${below}`, parents: true }]);
  assert.equal(await t.remove(), true);
  assert.ok(t.said.includes(`removed cgroup /${slices.join("/")}`), t.said.join("\n"));
  assert.deepEqual([...units], ["kubepods.slice", "kubepods-besteffort.slice", "kubepods-besteffort-other.slice"]);
});

test("removes the device manager's own files, and keeps plugins' files", async () => {
  const t = await start();
  const plugins = `${root}/device-plugins`;
  t.host.files.put(`${plugins}/kubelet_internal_checkpoint`, { data: "{}" });
  t.host.files.put(`${plugins}/kubelet.sock`, { kind: "socket" });
  t.host.files.put(`${plugins}/gpu.sock`, { kind: "socket" });
  assert.equal(await t.remove(), true);
  assert.ok(t.said.includes(`removed file ${plugins}/kubelet_internal_checkpoint`));
  assert.deepEqual(t.host.files.tree(root), [plugins, `${plugins}/gpu.sock`]);
});

test("removes the inhibitor delay file and reloads logind", async () => {
  const t = await start();
  const [directory, record] = ["/etc/systemd/logind.conf.d", `${root}/graceful_node_shutdown_state`];
  t.host.files.put(`${directory}/99-kubelet.conf`, { data: "[Login]" });
  t.host.files.put(record, { data: "{}" });
  t.host.program("systemctl", () => 0);
  const noted = { node: "n1", made: [root, `${root}/pods`, directory], files: [`${directory}/99-kubelet.conf`] };
  await writeOwnershipRecord(t.host.fs, root, noted, never);
  assert.equal(await t.remove(), true);
  for (const path of [directory, record, root]) assert.equal(await isThere(t, path), false, path);
  assert.equal(await isThere(t, "/etc/systemd"), true);
  assert.deepEqual(
    t.host.commands.filter(([program]) => program === "systemctl"),
    [["systemctl", "--no-ask-password", "kill", "--signal=HUP", "systemd-logind.service"]],
  );
});

test("keeps an inhibitor delay file that the node did not write", async () => {
  const t = await start();
  const file = "/etc/systemd/logind.conf.d/99-kubelet.conf";
  t.host.files.put(file, { data: "[Login]" });
  await recordOwnFile(t.host.fs, root, file, never);
  assert.equal(await t.remove(), true);
  assert.equal(await isThere(t, file), true);
});

test("removes the root directory and the ownership record in one step", async () => {
  const t = await start();
  const steps: string[][] = [];
  const { apply } = t.host.fs;
  t.host.fs.apply = (changes, signal) => {
    steps.push(changes.flatMap((change) => ("path" in change ? [change.path] : [])));
    return apply(changes, signal);
  };
  assert.equal(await t.remove(), true);
  assert.deepEqual(
    steps.find((paths) => paths.includes(`${root}/graftlet`)),
    [`${root}/pods`, `${root}/graftlet`, root],
  );
});

test("as part of leave, limits grace periods and mentions no Node to delete", async () => {
  const t = await start();
  const containerConfig = cri.ContainerConfig.fromPartial({
    metadata: { name: "main", attempt: 0 },
    image: { image: "busybox" },
    command: ["sleep", "3600"],
    labels: labels(),
    annotations: { "io.kubernetes.pod.terminationGracePeriod": "3600" },
  });
  const request = { podSandboxId: t.sandboxId, config: containerConfig };
  const { containerId } = await t.runtime.createContainer(cri.CreateContainerRequest.fromPartial(request), never);
  await t.runtime.startContainer(containerId, never);
  assert.equal(await t.remove({ leaving: { longestGraceSeconds: 60 } }), true);
  const stopped = t.runtime.calls.find(({ verb }) => verb === "stopContainer");
  assert.deepEqual(stopped?.request, [containerId, 60]);
  assert.equal(t.said.at(-1), "removed directory /var/log/pods");
});

test("removes nothing without confirmation; without a terminal, points to --yes", async () => {
  const t = await start();
  assert.equal(await t.remove({ yes: false }), false);
  assert.equal(t.said.at(-1), "nothing was removed; run this with --yes to remove it");
  assert.equal(await t.remove({ yes: false, ask: async () => "what?" }), false);
  assert.equal(t.said.at(-1), "nothing was removed");
  assert.deepEqual([t.made(), await isThere(t, volume)], [[], true]);
  assert.equal(await t.remove({ yes: false, ask: async () => " Yes\n" }), true);
});

test("deletes nothing through a mount that cannot be unmounted, and keeps the pod's directory and the record", async () => {
  const t = await start();
  t.host.files.mount(volume, "ext4");
  t.host.program("umount", (_args, { stderr }) => {
    stderr.write("target is busy\n");
    return 32;
  });
  assert.equal(await t.remove(), false);
  assert.ok(t.said.includes(`cannot remove mount ${volume}: unmounting ${volume} failed: target is busy`));
  assert.ok(t.said.includes(`kept because of a failure: directory ${root}/pods/${uid}`));
  assert.ok(t.said.includes(`kept because of a failure: directory ${root}/graftlet`));
  assert.equal(await isThere(t, `${root}/pods/${uid}/etc-hosts`), true);
  t.host.program("umount", (args) => {
    t.host.files.unmount(args[0] ?? "");
    return 0;
  });
  assert.equal(await t.remove(), true);
  assert.equal(await isThere(t, root), false);
});

test("makes mounts private before unmounting, the outermost recursively", async () => {
  const t = await start();
  const inner = `${volume}/inner`;
  await t.host.fs.apply([{ kind: "mkdir", path: inner }]);
  t.host.files.mount(volume, "ext4");
  await t.host.fs.apply([{ kind: "mkdir", path: inner }]);
  t.host.files.mount(inner, "ext4");
  assert.equal(await t.remove(), true);
  const commands = t.host.commands
    .filter(([name]) => name === "mount" || name === "umount")
    .map((argv) => argv.join(" "));
  assert.deepEqual(commands, [
    `mount --make-rprivate ${volume}`,
    `umount ${inner}`,
    `mount --make-rprivate ${volume}`,
    `umount ${volume}`,
  ]);
});

test("follows no symbolic link in place of a pod's directory, the pods directory or its logs", async () => {
  const t = await start();
  const other = "22222222-0000-4000-8000-000000000000";
  await t.host.fs.apply([
    { kind: "symlink", path: `${root}/pods/${other}`, target: "/precious" },
    { kind: "symlink", path: `${root}/pods/${uid}/out`, target: "/precious" },
    { kind: "symlink", path: `/var/log/pods/default_other_${uid}`, target: "/precious" },
  ]);
  assert.equal(await t.remove(), true);
  assert.equal(t.host.files.text("/precious/file"), "precious");
  assert.equal(await isThere(t, `${root}/pods/${other}`), true);
  assert.ok(t.said.includes(`left: directory ${root}/pods: not empty`));

  const all = await start();
  await all.host.fs.apply([
    { kind: "remove", path: `${root}/pods`, recursive: true },
    { kind: "mkdir", path: `/precious/${uid}` },
    { kind: "symlink", path: `${root}/pods`, target: "/precious" },
  ]);
  assert.equal(await all.remove(), true);
  assert.equal(await isThere(all, `/precious/${uid}`), true);
});

test("without graftlet's own directory, nothing in the root directory belongs to the node", async () => {
  const t = await start({ record: false });
  assert.equal(await t.remove(), true);
  assert.deepEqual([t.made(), await isThere(t, volume)], [[], true]);
  assert.ok(t.said.includes("not touched: pod default/web in the runtime may not belong to this node"));
});

test("an object that leaves does not clean the root directory of an object in another namespace", async () => {
  const t = await start();
  const object = { namespace: "a", name: "n1", uid: "1" };
  const own = JSON.parse(t.host.files.text(`${root}/graftlet/node.json`)) as object;
  t.host.files.put(`${root}/graftlet/node.json`, { data: JSON.stringify({ ...own, object }) });
  const leave = (leaving: object) =>
    t.remove({ leaving: { longestGraceSeconds: 1, object: { ...object, ...leaving } } });
  await assert.rejects(leave({ namespace: "b", uid: "2" }), {
    code: "failed_precondition",
    message: `nothing was removed: the root directory "${root}" belongs to GraftedNode a/n1`,
  });
  assert.equal(await leave({}), true);
});

test("rejects the root directory of another node, and one in use", async () => {
  const t = await start();
  t.host.files.put(`${root}/graftlet/node.json`, { data: '{"version":1,"node":"n2","made":[]}' });
  await assert.rejects(t.remove(), {
    message: `--root-dir "${root}" belongs to node n2, not to n1: give --hostname-override n2, or the root directory of n1`,
  });
  const { host } = t;
  await using _holder = await host.spawn(rivalCommand(`${root}/graftlet/lock`));
  await assert.rejects(t.remove(), {
    message: `nothing was removed: --root-dir "${root}" is in use by another graftlet (RuntimeInUse): stop that one, or use another directory`,
  });
  assert.deepEqual(t.made(), []);
});

test("removes nothing while a kubelet runs", async () => {
  const t = await start();
  await using _kubelet = await t.host.listen({ host: "127.0.0.1", port: 10_248 }, (connection) =>
    connection.once("data", () => void connection.end("HTTP/1.1 200 OK\r\n\r\nok")),
  );
  await assert.rejects(t.remove(), {
    message: /^nothing was removed: another agent answers on the target's port 10248/,
  });
  assert.deepEqual(t.made(), []);
});

test("a failed sandbox removal keeps its pod's files; a failed owned resource keeps the record", async () => {
  const t = await start({ sharing: "shared" });
  t.runtime.failNext("removePodSandbox", new CodedError("unknown", "stuck"));
  assert.equal(await t.remove(), false);
  assert.ok(t.said.some((line) => line.startsWith("cannot remove sandbox of pod default/web")));
  assert.equal(await isThere(t, volume), true);
  let attached = true;
  t.belongings.push({
    name: "Docker network graftlet-n1",
    async remove() {
      if (attached) throw new CodedError("permission_denied", "network has active endpoints");
    },
  });
  assert.equal(await t.remove(), false);
  assert.ok(t.said.includes("cannot remove Docker network graftlet-n1: network has active endpoints"));
  assert.deepEqual([await isThere(t, volume), await isThere(t, `${root}/graftlet/lock`)], [false, true]);
  attached = false;
  t.belongings[0] = { name: "Docker network graftlet-n1", remove: async () => undefined };
  assert.equal(await t.remove(), true);
  assert.equal(await isThere(t, root), false);
});

test("unmounts staged devices without deleting through them; one that stays mounted keeps the root directory", async () => {
  const t = await start();
  const staged = `${root}/plugins/kubernetes.io/local-volume/mounts/pv`;
  await t.host.fs.apply([{ kind: "mkdir", path: staged, parents: true }]);
  t.host.files.mount(staged, "ext4");
  t.host.files.put(`${staged}/data`, { data: "precious" });
  const { program } = t.host;
  program("umount", (args) => {
    if (args.includes(staged)) return 32;
    for (const path of args) t.host.files.unmount(path);
    return 0;
  });
  assert.equal(await t.remove(), false);
  assert.equal(t.host.files.text(`${staged}/data`), "precious");
  program("umount", (args) => {
    for (const path of args) t.host.files.unmount(path);
    return 0;
  });
  assert.equal(await t.remove(), true);
  assert.ok(t.said.includes(`removed mount ${staged}`));
  assert.equal(await isThere(t, root), false);
});

test("keeps another node's root directory nested in its own", async () => {
  const t = await start();
  for (const path of ["graftlet/node.json", `pods/${uid}/etc-hosts`]) t.host.files.put(`${root}/n2/${path}`, {});
  const theirs = t.host.files.tree(`${root}/n2`);
  assert.equal(await t.remove(), true);
  assert.deepEqual([theirs.length, t.host.files.tree(root)], [5, [`${root}/n2`, ...theirs]]);
});
