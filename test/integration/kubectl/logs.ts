import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { converse } from "../../harness/conversation.ts";
import type { Lab } from "../../harness/lab.ts";
import { shell, statusOf } from "../../harness/pods.ts";

/** kubectl logs. */
export function logTests(lab: () => Lab): void {
  const logs = (...args: string[]): Promise<string> => lab().cluster.mustKubectl(["logs", ...args]);
  const refused = async (...args: string[]): Promise<string> => {
    const { code, stderr } = await lab().cluster.kubectl(["logs", ...args]);
    assert.equal(code, 1);
    return stderr;
  };

  describe("kubectl logs", { concurrency: 4 }, () => {
    test("--follow shows lines as they are written, and ends with the container", async () => {
      const { cluster, pods } = lab();
      await pods.create("followed", {
        restartPolicy: "Never",
        containers: [shell("echo first; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo last; sleep 2; exit 3")],
      });
      await pods.ready("followed");
      await using follower = converse(cluster.startKubectl(["logs", "--follow", "followed"]));
      await follower.says("first\n");
      await using late = converse(cluster.startKubectl(["logs", "--follow", "--tail=0", "--timestamps", "followed"]));
      await cluster.mustKubectl(["exec", "followed", "--", "touch", "/tmp/go"]);
      assert.equal(await follower.ended(), 0);
      assert.equal(follower.stdout(), "first\nlast\n");
      assert.equal(await late.ended(), 0);
      assert.doesNotMatch(late.stdout(), /first/);
    });

    test("--tail, --limit-bytes, --timestamps, --since and --since-time select lines as requested", async () => {
      const { pods } = lab();
      await pods.create("lines", {
        restartPolicy: "Never",
        containers: [shell("echo old; sleep 8; echo middle >&2; sleep 0.2; echo; printf unfinished")],
      });
      assert.equal(await pods.outputOf("lines"), "old\nmiddle\n\nunfinished");
      assert.equal(await logs("lines", "--tail=0"), "");
      assert.equal(await logs("lines", "--tail=2"), "\nunfinished");
      assert.equal(await logs("lines", "--limit-bytes=6"), "old\nmi");
      const stamped = (await logs("lines", "--timestamps")).split("\n");
      const [old = "", middle = ""] = stamped.map((line) => line.split(" ")[0] ?? "");
      assert.deepEqual(
        stamped.map((line) => line.replace(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z /, "")),
        ["old", "middle", "", "unfinished"],
      );
      // A line has the time at which the runtime read it, which on a busy machine is a little later than it was written.
      assert.ok(Date.parse(middle) - Date.parse(old) >= 7000);
      const afterOld = new Date(Date.parse(old) + 1000).toISOString();
      assert.equal(await logs("lines", `--since-time=${afterOld}`), "middle\n\nunfinished");
      const seconds = Math.ceil((Date.now() - Date.parse(old)) / 1000) - 1;
      assert.equal(await logs("lines", `--since=${seconds}s`), "middle\n\nunfinished");
      assert.equal(await logs("lines", `--since=${seconds + 60}s`, "--limit-bytes=3"), "old");
    });

    test("shows a line longer than the runtime's buffer completely", async () => {
      const { pods } = lab();
      await pods.create("long-line", {
        restartPolicy: "Never",
        containers: [shell("head -c 100000 /dev/zero | tr '\\0' x; echo; echo end")],
      });
      assert.equal(await pods.outputOf("long-line"), `${"x".repeat(100_000)}\nend\n`);
      const stamped = await logs("long-line", "--timestamps");
      assert.equal(stamped.replaceAll(/^\S+Z /gm, ""), `${"x".repeat(100_000)}\nend\n`);
    });

    test("--previous shows the previous run, and reports if there is none", async () => {
      const { pods } = lab();
      await pods.create("second-run", counting("if [ $n = 1 ]; then exit 1; fi; exec sleep infinity"));
      await pods.create("never-ended", {});
      await pods.ready("never-ended");
      assert.equal(
        await refused("never-ended", "--previous"),
        'Error from server (BadRequest): previous terminated container "main" in pod "never-ended" not found\n',
      );
      await pods.until(
        "second-run",
        "to run a second time",
        (pod) => statusOf(pod)?.restartCount === 1 && statusOf(pod)?.state?.running !== undefined,
      );
      // A container that runs may not yet have said it.
      await lab().cluster.waitFor("its second word", async () => (await logs("second-run")) === "run 2\n");
      assert.equal(await logs("second-run", "--previous"), "run 1\n");
    });

    test("shows the last run of a container in crash loop back-off", async () => {
      const { pods } = lab();
      await pods.create("crashing", counting("exit 3"));
      const waiting = await pods.until(
        "crashing",
        "to wait after its second run",
        (pod) => statusOf(pod)?.restartCount === 1 && statusOf(pod)?.state?.waiting?.reason === "CrashLoopBackOff",
      );
      assert.equal(statusOf(waiting)?.lastState?.terminated?.exitCode, 3);
      assert.deepEqual(await Promise.all([logs("crashing"), logs("crashing", "--previous")]), ["run 2\n", "run 2\n"]);
    });

    test("shows logs of init containers during and after their run, before the main container's", async () => {
      const { cluster, pods } = lab();
      const hold = shell("echo preparing; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo prepared; sleep 2");
      await pods.create("initialised", {
        initContainers: [{ name: "prepare", ...hold }],
        containers: [shell("echo main; exec sleep infinity")],
      });
      await pods.until(
        "initialised",
        "its init container to run",
        (pod) => statusOf(pod, "prepare")?.state?.running !== undefined,
      );
      await using follower = converse(cluster.startKubectl(["logs", "--follow", "initialised", "--container=prepare"]));
      await follower.says("preparing\n");
      assert.match(
        await refused("initialised", "--container=main"),
        /\(BadRequest\): container "main" in pod "initialised" is waiting to start: PodInitializing\n$/,
      );
      await cluster.mustKubectl(["exec", "initialised", "--container=prepare", "--", "touch", "/tmp/go"]);
      assert.equal(await follower.ended(), 0);
      assert.equal(follower.stdout(), "preparing\nprepared\n");
      await pods.ready("initialised");
      assert.equal(await logs("initialised", "--container=prepare"), "preparing\nprepared\n");
      const main = () => logs("initialised", "--container=main");
      await cluster.waitFor("its first word", async () => (await main()) === "main\n");
      // kubectl takes the containers in no order of its own.
      const all = await logs("initialised", "--all-containers");
      assert.deepEqual(all.split(/(?=main|preparing)/).sort(), ["main\n", "preparing\nprepared\n"]);
    });

    test("reports what a container is waiting for if it has no log yet", async () => {
      const { pods } = lab();
      await pods.create("creating", {
        volumes: [{ name: "settings", configMap: { name: "never-there" } }],
        containers: [{ volumeMounts: [{ name: "settings", mountPath: "/settings" }] }],
      });
      await pods.create("pulling", { containers: [{ image: "registry.k8s.io/e2e-test-images/no-such-image:1" }] });
      await pods.event("creating", "FailedMount");
      assert.equal(
        await refused("creating"),
        'Error from server (BadRequest): container "main" in pod "creating" is waiting to start: ContainerCreating\n',
      );
      await pods.event("pulling", "Failed");
      await pods.until("pulling", "to be told to wait", (pod) =>
        /ErrImagePull|ImagePullBackOff/.test(statusOf(pod)?.state?.waiting?.reason ?? ""),
      );
      assert.match(
        await refused("pulling"),
        /^Error from server \(BadRequest\): container "main" in pod "pulling" is waiting to start: (image can't be pulled|trying and failing to pull image)\n$/,
      );
    });
  });
}

/** A pod that counts its runs in a volume, in `n`, and says which run it is. */
function counting(script: string) {
  return {
    volumes: [{ name: "count", emptyDir: {} }],
    containers: [
      shell(`n=$(($(cat /count/n 2>/dev/null || echo 0) + 1)); echo $n > /count/n; echo run $n; ${script}`, {
        volumeMounts: [{ name: "count", mountPath: "/count" }],
      }),
    ],
  };
}
