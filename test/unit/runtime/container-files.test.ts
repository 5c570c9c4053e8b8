import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { observe } from "../../fakes/pods.ts";
import { podOf, preparerIn, signal } from "./preparer.ts";

test("in a new sandbox, uses the files created in advance and writes only the content of the hosts file", async (t) => {
  const root = await mkdtemp(join(tmpdir(), "graftlet-files-"));
  t.after(() => rm(root, { recursive: true }));
  const { configure, preparer, applied } = preparerIn(root);
  const [pod, container] = podOf({});
  const created = await preparer.createContainerFiles(pod, container, 1, signal);
  const podDirectory = join(root, "kubelet/pods/uid-1");
  assert.equal(await readFile(join(podDirectory, "etc-hosts"), "utf8"), "");
  assert.deepEqual(created, { instance: "00000001", hostsFile: "" });
  assert.deepEqual(await preparer.createContainerFiles(pod, container, 1, signal), created);
  applied.length = 0;
  const { mounts } = await configure(pod, container, ["10.0.0.2"], observe([], []), { created });
  assert.deepEqual(
    mounts.map(({ hostPath }) => hostPath),
    [join(podDirectory, "etc-hosts"), join(podDirectory, "containers/c/00000001")],
  );
  assert.deepEqual(
    applied.map(({ kind }) => kind),
    ["write"],
  );
  assert.match(await readFile(join(podDirectory, "etc-hosts"), "utf8"), /^10\.0\.0\.2\tp$/m);
});

test("writes the hosts file ahead with the address that follows the last pod's, and again only if that was wrong", async (t) => {
  const root = await mkdtemp(join(tmpdir(), "graftlet-files-"));
  t.after(() => rm(root, { recursive: true }));
  const { configure, preparer, applied } = preparerIn(root);
  const writes = async (uid: string, address: string) => {
    const [pod, container] = podOf({}, {}, { uid });
    const created = await preparer.createContainerFiles(pod, container, 0, signal);
    applied.length = 0;
    await configure(pod, container, [address], observe([], []), { created });
    assert.match(
      await readFile(join(root, "kubelet/pods", uid, "etc-hosts"), "utf8"),
      new RegExp(`^${address}\tp$`, "m"),
    );
    return applied.length;
  };
  assert.deepEqual(
    [
      await writes("uid-1", "10.0.0.2"),
      await writes("uid-2", "10.0.0.3"),
      await writes("uid-3", "10.0.0.9"),
      await writes("uid-4", "10.0.0.10"),
    ],
    [1, 0, 1, 0],
  );
});
