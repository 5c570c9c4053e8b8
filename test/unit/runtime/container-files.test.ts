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
  const instance = await preparer.createContainerFiles(pod, container, 1, signal);
  const podDirectory = join(root, "kubelet/pods/uid-1");
  assert.equal(await readFile(join(podDirectory, "etc-hosts"), "utf8"), "");
  assert.equal(instance, "00000001");
  assert.equal(await preparer.createContainerFiles(pod, container, 1, signal), instance);
  applied.length = 0;
  const { mounts } = await configure(pod, container, ["10.0.0.2"], observe([], []), { instance });
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
