import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Lab, startLab } from "../harness/lab.ts";
import { processesOf, volumeFolder } from "../harness/pod-machine.ts";
import { must } from "../harness/processes.ts";
import { isNotFound, shell, statusOf } from "../harness/pods.ts";

let lab: Lab;
before(async () => {
  lab = await startLab("containers");
});
after(() => lab?.[Symbol.asyncDispose]());

describe("pod termination and its effects on the machine", { concurrency: 4 }, () => {
  test("deletion: SIGTERM is handled, and the object is removed once runtime and machine are clean", async () => {
    const { pods, cluster } = lab;
    const folder = join(cluster.layout.dir, "farewell");
    const volumes = [
      { name: "host", hostPath: { path: folder, type: "DirectoryOrCreate" } },
      { name: "memory", emptyDir: { medium: "Memory" } },
    ];
    const volumeMounts = [
      { name: "host", mountPath: "/host" },
      { name: "memory", mountPath: "/memory" },
    ];
    const script =
      "trap 'sleep 1; echo goodbye > /host/said; exit 0' TERM; echo > /host/trapped; while :; do sleep 0.1; done";
    await pods.create("polite", {
      terminationGracePeriodSeconds: 30,
      volumes,
      containers: [shell(script, { volumeMounts })],
    });
    const pod = await pods.ready("polite");
    // Without its trap the shell, which is process 1 there, does not get the signal.
    await cluster.waitFor("the shell's trap", () => existsSync(join(folder, "trapped")));
    const memory = volumeFolder(cluster, pod, "empty-dir", "memory");
    assert.ok(existsSync(memory) && processesOf(cluster, pod.metadata.uid).length >= 2);
    const gone = pods.gone("polite", ({ metadata: { uid } }) => ({
      processes: processesOf(cluster, uid),
      volume: existsSync(memory),
    }));
    await pods.remove("polite");
    const { last, found } = await gone;
    assert.deepEqual(found, { processes: [], volume: false });
    assert.equal(readFileSync(join(folder, "said"), "utf8"), "goodbye\n");
    assert.deepEqual(
      [last.status?.phase, statusOf(last)?.state?.terminated?.exitCode, last.metadata.deletionGracePeriodSeconds],
      ["Succeeded", 0, 0],
    );
    await pods.event("polite", "Killing", "Stopping container main");
  });

  test("deletion: kills a process that ignores SIGTERM after its grace period, not before", async () => {
    const { pods } = lab;
    await pods.create("stubborn", {
      terminationGracePeriodSeconds: 4,
      containers: [shell("trap '' TERM; while :; do sleep 0.1; done")],
    });
    await pods.ready("stubborn");
    const began = performance.now();
    const gone = pods.gone("stubborn", ({ metadata: { uid } }) => processesOf(lab.cluster, uid));
    await pods.remove("stubborn");
    const { last, found } = await gone;
    assert.ok(performance.now() - began >= 3_900, "the grace period of 4 s was cut short");
    assert.deepEqual(found, []);
    assert.equal(statusOf(last)?.state?.terminated?.exitCode, 137);
    assert.equal(last.status?.phase, "Failed");
  });

  test("deletion by force: the object is removed at once, processes and directories follow", async () => {
    const { pods, cluster } = lab;
    await pods.create("forced", {
      terminationGracePeriodSeconds: 600,
      containers: [shell("trap '' TERM; while :; do sleep 0.1; done")],
    });
    const {
      metadata: { uid },
    } = await pods.ready("forced");
    await cluster.mustKubectl(["delete", "pod", "forced", "--force", "--grace-period=0", "--wait=false"]);
    await assert.rejects(pods.api.get("/api/v1/namespaces/default/pods/forced"), isNotFound);
    await cluster.waitFor("the processes of the forced pod to end", () => processesOf(cluster, uid).length === 0);
    await cluster.waitFor(
      "the directory of the forced pod to go",
      () => !existsSync(join(cluster.layout.kubeletRoot, "pods", uid)),
    );
  });

  test("deletion: is not blocked by names that are not UTF-8 or paths longer than PATH_MAX in a volume", async () => {
    const { pods, cluster } = lab;
    const fill = [
      "cd /disk; mkdir \"$(printf '\\376')\"; touch \"$(printf '\\377')\" \"$(printf '\\376/\\377')\"",
      "d=$(printf '%0200d' 0); i=0; while [ $i -lt 60 ]; do mkdir $d; cd -P $d; i=$((i + 1)); done; touch bottom; echo made",
      "exec sleep infinity",
    ].join("\n");
    const volumes = [{ name: "disk", emptyDir: {} }];
    await pods.create("awkward", {
      volumes,
      containers: [shell(fill, { volumeMounts: [{ name: "disk", mountPath: "/disk" }] })],
    });
    const pod = await pods.ready("awkward");
    await pods.logged("awkward", /made/);
    const folder = volumeFolder(cluster, pod, "empty-dir", "disk");
    assert.ok(existsSync(folder));
    const gone = pods.gone("awkward", () => existsSync(folder));
    await pods.remove("awkward");
    assert.equal((await gone).found, false);
  });

  test("deletion: reports an immutable file in an event, and completes once it is mutable", async () => {
    const { pods, cluster } = lab;
    const volumes = [{ name: "disk", emptyDir: {} }];
    const volumeMounts = [{ name: "disk", mountPath: "/disk" }];
    const containers = [shell("touch /disk/fixed /disk/loose; exec sleep infinity", { volumeMounts })];
    await Promise.all(["held", "beside"].map((name) => pods.create(name, { volumes, containers })));
    const folder = volumeFolder(cluster, await pods.ready("held"), "empty-dir", "disk");
    await pods.ready("beside");
    const fixed = join(folder, "fixed");
    await cluster.waitFor("the files", () => existsSync(join(folder, "loose")));
    await must(["chattr", "+i", fixed]);
    try {
      await pods.remove("held");
      await pods.event("held", "FailedUnmount", /cannot unmount the pod's volumes; retrying: .*fixed/);
      assert.deepEqual([existsSync(fixed), existsSync(join(folder, "loose"))], [true, false]);
      const other = pods.gone("beside");
      await pods.remove("beside");
      await other;
    } finally {
      await must(["chattr", "-i", fixed]);
    }
    const gone = pods.gone("held", () => existsSync(folder));
    assert.equal((await gone).found, false);
  });

  test("a grace period can be shortened while a pod terminates", async () => {
    const { pods } = lab;
    await pods.create("hurried", {
      terminationGracePeriodSeconds: 600,
      containers: [shell("trap '' TERM; while :; do sleep 0.1; done")],
    });
    await pods.ready("hurried");
    const gone = pods.gone("hurried");
    await pods.remove("hurried");
    await pods.until(
      "hurried",
      "to be deleted with its own grace period",
      ({ metadata }) => metadata.deletionGracePeriodSeconds === 600,
    );
    await pods.event("hurried", "Killing", "Stopping container main");
    await pods.remove("hurried", 2);
    // Within a minute, of the ten that it had.
    const { last } = await gone;
    assert.equal(statusOf(last)?.state?.terminated?.exitCode, 137);
  });
});
