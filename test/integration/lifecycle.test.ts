import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { waitFor } from "../harness/wait.ts";
import { type ContainerDraft, condition, containerId, images, shell, statusOf } from "../harness/pods.ts";

let lab: Lab;
before(async () => {
  lab = await startLab("containers");
});
after(() => lab?.[Symbol.asyncDispose]());

const sh = (script: string) => ({ exec: { command: ["sh", "-c", script] } });
const work = { volumes: [{ name: "work", emptyDir: {} }] };
const volumeMounts = [{ name: "work", mountPath: "/work" }];
const isRunning = (pod: Pod, name: string): boolean => statusOf(pod, name)?.state?.running !== undefined;
const restarts = (pod: Pod, name: string): number => statusOf(pod, name)?.restartCount ?? 0;

describe("lifecycle hooks", { concurrency: 4 }, () => {
  test("postStart runs before the container counts as running; preStop runs before SIGTERM, within the grace period", async () => {
    const { pods, cluster } = lab;
    const folder = join(cluster.layout.dir, "hooked");
    await pods.create("hooked", {
      terminationGracePeriodSeconds: 30,
      volumes: [{ name: "host", hostPath: { path: folder, type: "DirectoryOrCreate" } }],
      containers: [
        shell("trap 'echo term >> /host/said; exit 0' TERM; while :; do sleep 0.1; done", {
          volumeMounts: [{ name: "host", mountPath: "/host" }],
          lifecycle: {
            postStart: sh("sleep 2; echo started >> /host/said"),
            preStop: sh("sleep 1; echo stopping >> /host/said"),
          },
        }),
      ],
    });
    await pods.until("hooked", "to run", (pod) => isRunning(pod, "main"));
    assert.equal(readFileSync(join(folder, "said"), "utf8"), "started\n");
    const gone = pods.gone("hooked");
    await pods.remove("hooked");
    const { last } = await gone;
    assert.equal(readFileSync(join(folder, "said"), "utf8"), "started\nstopping\nterm\n");
    assert.equal(last.status?.phase, "Succeeded");
  });

  test("a failing postStart hook kills its container, reports why, and restarts it", async () => {
    const { pods } = lab;
    await pods.create("unstarted", {
      containers: [{ lifecycle: { postStart: sh("echo no good >&2; exit 7") } }],
    });
    await pods.event("unstarted", "FailedPostStartHook", "PostStartHook failed");
    await pods.event("unstarted", "Killing", "FailedPostStartHook");
    const failed = await pods.until("unstarted", "to say why", (pod) => {
      return statusOf(pod)?.state?.waiting?.reason === "PostStartHookError";
    });
    assert.match(
      statusOf(failed)?.state?.waiting?.message ?? "",
      /^Exec lifecycle hook \(\[sh -c .*exited with 7: no good\n, message: "no good\\n"$/s,
    );
    await pods.until("unstarted", "to be tried again", (pod) => restarts(pod, "main") > 0);
  });

  test("HTTP hooks are sent from the target", async () => {
    const { pods } = lab;
    await pods.create("server", { containers: [{ image: images.agnhost, command: undefined, args: ["netexec"] }] });
    const server = await pods.ready("server");
    const host = server.status?.podIP ?? assert.fail("the server has no address");
    await pods.create("caller", {
      containers: [{ lifecycle: { postStart: { httpGet: { host, port: 8080, path: "/echo?msg=from-the-hook" } } } }],
    });
    await pods.ready("caller");
    await pods.logged("server", /GET \/echo\?msg=from-the-hook/);
  });

  test("a sleep hook lasts as long as configured, but at most the grace period", async () => {
    const { pods } = lab;
    const sleeper = (name: string, grace: number, seconds: number) =>
      pods.create(name, {
        terminationGracePeriodSeconds: grace,
        containers: [
          shell("trap 'exit 0' TERM; while :; do sleep 0.1; done", { lifecycle: { preStop: { sleep: { seconds } } } }),
        ],
      });
    await sleeper("sleepy", 30, 4);
    // A pod may not ask to sleep longer than its own grace period; whoever deletes it may give it a shorter one.
    await sleeper("cut-short", 700, 600);
    await Promise.all([pods.ready("sleepy"), pods.ready("cut-short")]);
    const began = performance.now();
    const ends = ["sleepy", "cut-short"].map(async (name) => {
      const { last } = await pods.gone(name);
      assert.ok(performance.now() - began >= 3_900, `${name} did not have its 4 s`);
      assert.equal(statusOf(last)?.state?.terminated?.exitCode, 0);
    });
    await Promise.all([pods.remove("sleepy"), pods.remove("cut-short", 4)]);
    await Promise.all(ends);
  });
});

describe("sidecars of a pod", { concurrency: 4 }, () => {
  /** Notes in the pod's journal that it is up, then that it is down, and shows the journal. */
  const sidecar = (name: string): ContainerDraft =>
    shell(
      `trap 'echo ${name} down >> /work/log; cat /work/log; exit 0' TERM
       echo ${name} up >> /work/log; touch /tmp/up; while :; do sleep 0.1; done`,
      {
        name,
        restartPolicy: "Always",
        volumeMounts,
        startupProbe: { ...sh("test -e /tmp/up"), periodSeconds: 1, failureThreshold: 60, timeoutSeconds: 20 },
      },
    );

  test("sidecars start in order, run next to other containers, keep no pod alive, and end in reverse order", async () => {
    const { pods } = lab;
    const note = (what: string, name: string) => shell(`echo ${what} >> /work/log`, { name, volumeMounts });
    await pods.create("accompanied", {
      ...work,
      restartPolicy: "Never",
      terminationGracePeriodSeconds: 30,
      initContainers: [note("init 1", "i1"), sidecar("s1"), note("init 2", "i2"), sidecar("s2")],
      containers: [note("main", "main")],
    });
    const done = await pods.until("accompanied", "to succeed", ({ status }) => status?.phase === "Succeeded");
    assert.deepEqual((await pods.log("accompanied", "container=s1")).trim().split("\n"), [
      "init 1",
      "s1 up",
      "init 2",
      "s2 up",
      "main",
      "s2 down",
      "s1 down",
    ]);
    assert.deepEqual(
      ["s1", "s2"].map((name) => [statusOf(done, name)?.state?.terminated?.exitCode, restarts(done, name)]),
      [
        [0, 0],
        [0, 0],
      ],
    );
    const began = pods.history("accompanied").find((pod) => statusOf(pod, "main")?.state?.terminated);
    assert.equal(condition(began ?? done, "Initialized")?.status, "True");
  });

  test("sidecars restart regardless of the pod's policy, and are ready by their probe", async () => {
    const { pods } = lab;
    await pods.create("relapsing", {
      ...work,
      restartPolicy: "Never",
      initContainers: [
        shell("[ -e /work/once ] || { touch /work/once; sleep 1; exit 3; }; touch /tmp/up; sleep infinity", {
          name: "side",
          restartPolicy: "Always",
          volumeMounts,
          readinessProbe: { ...sh("test -e /tmp/up"), periodSeconds: 1, timeoutSeconds: 20 },
        }),
      ],
    });
    const ready = await pods.ready("relapsing");
    assert.deepEqual(
      [restarts(ready, "side"), statusOf(ready, "side")?.lastState?.terminated?.exitCode, restarts(ready, "main")],
      [1, 3, 0],
    );
    assert.equal(ready.status?.phase, "Running");
  });
});

describe("ephemeral containers of a pod", { concurrency: 4 }, () => {
  /** Adds a container to a running pod, as `kubectl debug` does. */
  const debug = (pod: string, container: object) =>
    lab.pods.api.patch<Pod>(`/api/v1/namespaces/default/pods/${pod}/ephemeralcontainers`, {
      spec: { ephemeralContainers: [{ image: images.busybox, ...container }] },
    });
  const ephemeral = (pod: Pod, name: string) =>
    pod.status?.ephemeralContainerStatuses?.find((status) => status.name === name);

  test("ephemeral containers join a running pod, see their target's processes, support exec and logs, and run once", async () => {
    const { pods, cluster } = lab;
    await pods.create("patient", {});
    const before = await pods.ready("patient");
    await debug("patient", { name: "once", command: ["sh", "-c", "exit 3"] });
    const ended = await pods.until("patient", "once to end", (pod) => !!ephemeral(pod, "once")?.state?.terminated);
    assert.equal(ephemeral(ended, "once")?.state?.terminated?.exitCode, 3);
    const look = `tr '\\0' ' ' < /proc/1/cmdline; echo; sleep infinity`;
    await debug("patient", { name: "doctor", command: ["sh", "-c", look], targetContainerName: "main" });
    const joined = await pods.until("patient", "doctor to run", (pod) => !!ephemeral(pod, "doctor")?.state?.running);
    assert.deepEqual(
      [ephemeral(joined, "once")?.containerID, ephemeral(joined, "once")?.restartCount],
      [ephemeral(ended, "once")?.containerID, 0],
    );
    assert.deepEqual([containerId(joined), condition(joined, "Ready")?.status], [containerId(before), "True"]);
    await waitFor("the target's command in the log", async () => {
      return (await pods.log("patient", "container=doctor")).trim() === "sleep infinity";
    });
    const said = await cluster.mustKubectl(["exec", "patient", "-c", "doctor", "--", "echo", "well"]);
    assert.equal(said.trim(), "well");
    await pods.event("patient", "Started", "Container started");
  });

  test("ephemeral containers that cannot start report why, and do not affect their pod", async () => {
    const { pods } = lab;
    await pods.create("unmatched", {});
    await pods.ready("unmatched");
    await debug("unmatched", { name: "stray", command: ["sleep", "infinity"], image: "registry.invalid/none:1" });
    await pods.until("unmatched", "the image to be missed", (pod) =>
      /^(ErrImagePull|ImagePullBackOff)$/.test(ephemeral(pod, "stray")?.state?.waiting?.reason ?? ""),
    );
    const pod = await pods.ready("unmatched");
    assert.equal(pod.status?.phase, "Running");
  });
});

describe("restart policies of containers", { concurrency: 4 }, () => {
  const rule = (action: string, ...values: number[]) => ({ action, exitCodes: { operator: "In", values } });

  test("exit code rules of a container apply regardless of the pod's policy", async () => {
    const { pods } = lab;
    await pods.create("ruled", {
      ...work,
      restartPolicy: "Never",
      containers: [
        shell("[ -e /work/once ] && exit 7; touch /work/once; exit 42", {
          volumeMounts,
          restartPolicy: "Never",
          restartPolicyRules: [rule("Restart", 42)],
        }),
      ],
    });
    const failed = await pods.until("ruled", "to fail", ({ status }) => status?.phase === "Failed");
    const { state, lastState, restartCount } = statusOf(failed) ?? assert.fail("main has no status");
    assert.deepEqual([state?.terminated?.exitCode, lastState?.terminated?.exitCode, restartCount], [7, 42, 1]);
  });

  test("a container can restart all containers of its pod, including init containers, in the same sandbox", async () => {
    const { pods } = lab;
    await pods.create("anew", {
      ...work,
      restartPolicy: "Never",
      initContainers: [shell("echo init >> /work/log", { name: "init", volumeMounts })],
      containers: [
        shell("[ -e /work/once ] && { cat /work/log; exec sleep infinity; }; touch /work/once; sleep 2; exit 9", {
          volumeMounts,
          restartPolicy: "Never",
          restartPolicyRules: [rule("RestartAllContainers", 9)],
        }),
        { name: "other" },
      ],
    });
    const first = await pods.until("anew", "to run", (pod) => isRunning(pod, "main") && isRunning(pod, "other"));
    const again = await pods.until("anew", "to run again", (pod) => {
      return ["main", "other"].every((name) => isRunning(pod, name) && restarts(pod, name) === 1);
    });
    assert.deepEqual(
      [again.status?.podIP, restarts(again, "init"), condition(again, "AllContainersRestarting")?.status],
      [first.status?.podIP, 1, "False"],
    );
    await waitFor("the second run's log", async () => (await pods.log("anew", "container=main")) === "init\ninit\n");
    const history = pods.history("anew");
    assert.ok(history.some((pod) => condition(pod, "AllContainersRestarting")?.status === "True"));
    assert.ok(history.every(({ status }) => status?.phase !== "Failed"));
    assert.equal(condition(again, "Initialized")?.status, "True");
  });
});

describe("deadline, hostname, environment files and sysctls of a pod", { concurrency: 4 }, () => {
  test("activeDeadlineSeconds fails a pod regardless of its containers", async () => {
    const { pods } = lab;
    // On a busy machine a pod may take longer to begin than a deadline that a test waits for.
    await pods.create("late", { activeDeadlineSeconds: 600, containers: [{}, { name: "other" }] });
    const { status } = await pods.ready("late");
    const active = Math.ceil((Date.now() - Date.parse(status?.startTime ?? "")) / 1000);
    await pods.patch("late", { spec: { activeDeadlineSeconds: active + 3 } });
    const failed = await pods.until("late", "to fail", ({ status }) => status?.phase === "Failed");
    const text = "Pod was active on the node longer than the specified deadline";
    assert.deepEqual([failed.status?.reason, failed.status?.message], ["DeadlineExceeded", text]);
    assert.ok(statusOf(failed)?.state?.terminated && statusOf(failed, "other")?.state?.terminated);
    await pods.event("late", "DeadlineExceeded", text);
  });

  test("sets the pod's own hostname, or its FQDN", async () => {
    const { pods } = lab;
    assert.equal(await pods.output("named", shell("hostname"), { hostnameOverride: "else-where" }), "else-where\n");
    assert.equal(
      await pods.output("whole", shell("hostname"), { subdomain: "sub", setHostnameAsFQDN: true }),
      "whole.sub.default.svc.cluster.local\n",
    );
  });

  test("reads variables from files that an init container wrote", async () => {
    const { pods } = lab;
    const fileKeyRef = { volumeName: "work", path: "env", key: "WORD" };
    const spec = {
      ...work,
      initContainers: [shell("echo \"WORD='from the file'\" > /work/env", { name: "init", volumeMounts })],
    };
    const main = shell('echo "$SAID"', { env: [{ name: "SAID", valueFrom: { fileKeyRef } }] });
    assert.equal(await pods.output("filed", main, spec), "from the file\n");
  });

  test("sets safe sysctls, and rejects others", async () => {
    const { pods, cluster } = lab;
    const sysctls = [
      { name: "kernel.shm_rmid_forced", value: "1" },
      { name: "net/ipv4/tcp_syncookies", value: "0" },
    ];
    const show = shell("cat /proc/sys/kernel/shm_rmid_forced /proc/sys/net/ipv4/tcp_syncookies");
    assert.equal(await pods.output("tuned", show, { securityContext: { sysctls } }), "1\n0\n");
    await pods.create("forbidden", {
      nodeName: cluster.nodeName,
      securityContext: { sysctls: [{ name: "kernel.msgmax", value: "10000" }] },
    });
    const refused = await pods.until("forbidden", "to be refused", ({ status }) => status?.phase === "Failed");
    assert.deepEqual(
      [refused.status?.reason, refused.status?.message],
      ["SysctlForbidden", 'Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted'],
    );
  });
});
