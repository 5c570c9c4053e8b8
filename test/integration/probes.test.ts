import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Pod, Probe } from "../../src/objects.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { volumeFolder } from "../harness/pod-machine.ts";
import { condition, images, shell, statusOf } from "../harness/pods.ts";
import { waitFor } from "../harness/wait.ts";

let lab: Lab;
before(async () => {
  lab = await startLab("containers");
});
after(() => lab?.[Symbol.asyncDispose]());

/** Asked often, and patiently: on a busy machine a command may take its time. */
const quick = { periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 20 };
const isReady = (pod: Pod): boolean => condition(pod, "Ready")?.status === "True";

/** A pod whose readiness hangs on the file /work/up, which the test makes and removes on the machine. */
async function switchable(name: string, container: object): Promise<{ on(): void; off(): void }> {
  const { pods, cluster } = lab;
  await pods.create(
    name,
    {
      volumes: [{ name: "work", emptyDir: {} }],
      containers: [{ ...container, volumeMounts: [{ name: "work", mountPath: "/work" }] }],
    },
    { labels: { app: name } },
  );
  const pod = await pods.until(name, "to run unready", (one) => statusOf(one)?.state?.running !== undefined);
  const file = join(volumeFolder(cluster, pod, "empty-dir", "work"), "up");
  return { on: () => writeFileSync(file, "up"), off: () => rmSync(file) };
}

/** Unready, ready, unready: in the conditions, in the container's status and in an event that says why. */
async function flips(
  name: string,
  probed: { on(): void | Promise<void>; off(): void | Promise<void> },
  why: RegExp,
): Promise<void> {
  const { pods } = lab;
  await probed.on();
  const ready = await pods.ready(name);
  assert.deepEqual(
    [statusOf(ready)?.ready, statusOf(ready)?.started, condition(ready, "ContainersReady")?.status],
    [true, true, "True"],
  );
  await probed.off();
  const unready = await pods.until(name, "to become unready", (pod) => !isReady(pod));
  for (const type of ["Ready", "ContainersReady"]) {
    const { status, reason, message } = condition(unready, type) ?? {};
    assert.deepEqual(
      [status, reason, message],
      ["False", "ContainersNotReady", "containers with unready status: [main]"],
    );
  }
  assert.deepEqual(
    [statusOf(unready)?.ready, statusOf(unready)?.started, unready.status?.phase, statusOf(unready)?.restartCount],
    [false, true, "Running", 0],
  );
  await pods.event(name, "Unhealthy", why);
}

const restarted = (pod: Pod): boolean => (statusOf(pod)?.restartCount ?? 0) > 0;

describe("liveness and startup probes", { concurrency: 4 }, () => {
  test("probes kill an unhealthy container with the probe's grace period, and restart it", async () => {
    const { pods } = lab;
    await pods.create("hung", {
      terminationGracePeriodSeconds: 60,
      containers: [
        shell("trap : TERM; touch /tmp/alive; sleep 3; rm /tmp/alive; while :; do sleep 1; done", {
          livenessProbe: {
            exec: { command: ["cat", "/tmp/alive"] },
            ...quick,
            failureThreshold: 2,
            terminationGracePeriodSeconds: 2,
          },
        }),
      ],
    });
    const pod = await pods.until("hung", "to be restarted", restarted);
    const ended = statusOf(pod)?.lastState?.terminated;
    assert.equal(ended?.exitCode, 137, "it does not listen to SIGTERM");
    const ranMs = Date.parse(ended?.finishedAt ?? "") - Date.parse(ended?.startedAt ?? "");
    assert.ok(ranMs >= 5_000 && ranMs < 55_000, `it ran ${ranMs} ms: the pod's own grace is a minute`);
    await pods.event("hung", "Unhealthy", /^Liveness probe failed: cat: .*No such file or directory/);
    await pods.event("hung", "Killing", "Container main failed liveness probe, will be restarted");
  });

  test("probes end a pod with an unhealthy container if its policy forbids a restart", async () => {
    const { pods } = lab;
    const livenessProbe = { ...quick, exec: { command: ["false"] } };
    await pods.create("mortal", { restartPolicy: "Never", containers: [{ livenessProbe }] });
    await pods.until("mortal", "to have failed", ({ status }) => status?.phase === "Failed");
    assert.ok(!pods.history("mortal").some(restarted));
  });

  test("startup holds back other probes until it succeeds; then the pod is Ready and liveness applies", async () => {
    const { pods } = lab;
    const asks = (file: string) => ({ ...quick, exec: { command: ["cat", file] } });
    await pods.create("slow-start", {
      containers: [
        shell("sleep 5; touch /tmp/up; exec sleep infinity", {
          startupProbe: { ...asks("/tmp/up"), failureThreshold: 60 },
          livenessProbe: asks("/tmp/up"),
          readinessProbe: asks("/tmp/up"),
        }),
      ],
    });
    const ready = await pods.ready("slow-start");
    assert.deepEqual([statusOf(ready)?.started, statusOf(ready)?.restartCount], [true, 0]);
    const before = pods.history("slow-start").filter((pod) => statusOf(pod)?.state?.running && !isReady(pod));
    assert.ok(before.some((pod) => statusOf(pod)?.started === false));
    const told = (await pods.events("slow-start")).filter(({ reason }) => reason === "Unhealthy");
    assert.ok(told.length > 0 && told.every(({ message }) => message?.startsWith("Startup probe failed: ")));
  });

  test("probes kill and restart a container that does not start in time", async () => {
    const { pods } = lab;
    const startupProbe = { ...quick, failureThreshold: 3, tcpSocket: { port: 9 } };
    await pods.create("stuck", { containers: [shell("exec sleep infinity", { startupProbe })] });
    await pods.until("stuck", "to be restarted", restarted);
    await pods.event("stuck", "Killing", "Container main failed startup probe, will be restarted");
    assert.ok(!pods.history("stuck").some((pod) => statusOf(pod)?.started));
  });
});

describe("readiness probes", { concurrency: 4 }, () => {
  test("readiness probes by command control whether a Service sends traffic", async () => {
    const { pods, cluster } = lab;
    await cluster.apply({
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: "front" },
      spec: { selector: { app: "by-exec" }, ports: [{ port: 80 }] },
    });
    const probed = await switchable("by-exec", {
      readinessProbe: { ...quick, exec: { command: ["cat", "/work/up"] } },
    });
    const before = await pods.until(
      "by-exec",
      "to be seen unready",
      (pod) => condition(pod, "Ready")?.status === "False" && statusOf(pod)?.state?.running !== undefined,
    );
    assert.equal(statusOf(before)?.ready, false);
    await flips("by-exec", probed, /^Readiness probe failed: cat: .*No such file or directory/);
    const serves = (wanted: boolean) =>
      cluster.waitFor(`the Service to count the pod as ${wanted ? "ready" : "unready"}`, async () => {
        const { items } = await pods.api.get<{ items: { endpoints?: { conditions: { ready: boolean } }[] }[] }>(
          "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=front",
        );
        return items.flatMap(({ endpoints }) => endpoints ?? []).some(({ conditions }) => conditions.ready === wanted);
      });
    await serves(false);
    probed.on();
    await serves(true);
  });

  test("readiness probes by HTTP use a named port", async () => {
    const probed = await switchable("by-http", {
      command: ["httpd", "-f", "-p", "8080", "-h", "/work"],
      ports: [{ name: "web", containerPort: 8080 }],
      readinessProbe: { ...quick, httpGet: { path: "/up", port: "web" } },
    });
    await flips("by-http", probed, /^Readiness probe failed: HTTP probe failed with statuscode: 404$/);
  });

  test("readiness probes by HTTP accept servers that violate the protocol, as hooks do", async () => {
    const { pods } = lab;
    const answers = {
      "bare-lf": "HTTP/1.1 200 OK\\n\\nok",
      "bare-lf-of-1-0": "HTTP/1.0 200 OK\\nContent-Type: text/plain\\n\\nok",
      "length-twice": "HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nContent-Length: 2\\r\\n\\r\\nok",
      "length-and-chunks":
        "HTTP/1.1 200 OK\\r\\nContent-Length: 12\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n2\\r\\nok\\r\\n0\\r\\n\\r\\n",
      "blank-before-colon": "HTTP/1.1 200 OK\\r\\nServer : odd\\r\\n\\r\\nok",
    };
    const server = `cat >/tmp/answer <<'END'
cr=$(printf '\\r')
while read -r line; do case $line in ''|"$cr") break ;; esac; done
echo asked >>/tmp/asked
printf "$ANSWER"
END
while :; do nc -l -p "$PORT" -e sh /tmp/answer; done & until [ "$(grep -c asked /tmp/asked)" -ge 6 ]; do sleep 0.2; done; echo asked often; wait`;
    const containers = Object.entries(answers).map(([name, ANSWER], index) => {
      const httpGet = { path: "/", port: 8081 + index };
      const env = Object.entries({ ANSWER, PORT: String(httpGet.port) }).map(([of, value]) => ({ name: of, value }));
      return shell(server, {
        name,
        env,
        readinessProbe: { ...quick, httpGet },
        // The server accepts one connection after another; on a busy machine it refuses some.
        livenessProbe: { ...quick, httpGet, initialDelaySeconds: 2, failureThreshold: 30 },
      });
    });
    const lifecycle = { postStart: { httpGet: { path: "/", port: 8081 } } };
    await pods.create("sloppy", { containers: [...containers, { name: "hooked", lifecycle }] });
    for (const name of Object.keys(answers))
      await waitFor(`${name} to be probed`, async () => /often/.test(await pods.log("sloppy", `container=${name}`)), {
        explain: async () => JSON.stringify(await pods.events("sloppy")),
      });
    const { status } = await pods.ready("sloppy");
    assert.deepEqual(
      status?.containerStatuses?.map(({ name, restartCount }) => [name, restartCount <= (name === "hooked" ? 1 : 0)]),
      [...Object.keys(answers), "hooked"].toSorted().map((name) => [name, true]),
    );
    const failures = (await pods.events("sloppy")).filter(({ reason }) => reason === "Unhealthy");
    for (const { message } of failures)
      assert.match(message ?? "", /connection refused|connection reset by peer|deadline exceeded|EOF/);
  });

  test("readiness probes by TCP succeed if the connection is accepted", async () => {
    const script =
      "while :; do until [ -e /work/up ]; do sleep 0.1; done; httpd -f -p 8080 & while [ -e /work/up ]; do sleep 0.1; done; kill $!; done";
    const probed = await switchable(
      "by-tcp",
      shell(script, { readinessProbe: { ...quick, tcpSocket: { port: 8080 } } }),
    );
    await flips(
      "by-tcp",
      probed,
      /^Readiness probe failed: dial tcp 10\.244\.0\.\d+:8080: connect: connection refused$/,
    );
  });

  test("readiness probes by gRPC use the health service", async () => {
    const { pods, cluster } = lab;
    await pods.create("by-grpc", {
      containers: [
        {
          image: images.agnhost,
          command: ["/agnhost", "grpc-health-checking"],
          readinessProbe: { ...quick, grpc: { port: 5000 } },
        },
      ],
    });
    const { status } = await pods.ready("by-grpc");
    const tell = async (what: string) => {
      const { code, stderr } = await cluster.runInside([
        cluster.tools.path("curl"),
        "--silent",
        "--show-error",
        "--max-time",
        "5",
        `http://${status?.podIP}:8080/${what}`,
      ]);
      assert.equal(code, 0, stderr);
    };
    await flips(
      "by-grpc",
      { on: () => tell("make-serving"), off: () => tell("make-not-serving") },
      /^Readiness probe failed: service unhealthy \(responded with "NOT_SERVING"\)$/,
    );
  });

  test("readiness probes respect the initial delay and success threshold", async () => {
    const { pods } = lab;
    const works: Probe = { exec: { command: ["true"] }, periodSeconds: 1 };
    await pods.create("delayed", { containers: [{ readinessProbe: { ...works, initialDelaySeconds: 4 } }] });
    await pods.create("repeated", { containers: [{ readinessProbe: { ...works, successThreshold: 4 } }] });
    for (const [name, leastMs] of [
      ["delayed", 3_000],
      ["repeated", 2_000],
    ] as const) {
      const pod = await pods.ready(name);
      const waitedMs =
        Date.parse(condition(pod, "Ready")?.lastTransitionTime ?? "") -
        Date.parse(statusOf(pod)?.state?.running?.startedAt ?? "");
      assert.ok(waitedMs >= leastMs, `${name} became Ready ${waitedMs} ms after its start, in whole seconds of status`);
    }
  });

  test("readiness probes fail a command that exceeds its timeout", async () => {
    const { pods } = lab;
    await pods.create("slow", {
      containers: [{ readinessProbe: { ...quick, exec: { command: ["sleep", "20"] }, timeoutSeconds: 1 } }],
    });
    await pods.event("slow", "Unhealthy", 'Readiness probe failed: command timed out: "sleep 20" timed out after 1s');
    assert.ok(!pods.history("slow").some(isReady));
  });
});
