import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Lab, startLab } from "../harness/lab.ts";
import { type Invariants, createInvariants } from "../harness/invariants.ts";
import { particulars } from "../harness/particulars.ts";
import { condition, containerId, firstProcess, images, shell, type SpecDraft, statusOf } from "../harness/pods.ts";
import { pullSecret } from "../harness/pull-secret.ts";
import { must } from "../harness/processes.ts";

let lab: Lab;
let invariants: Invariants;

/** What must never be seen in a log. */
const secrets = {
  env: "env-8c1f0d5b2e",
  file: "file-4b7a93c6d1",
  wrongPassword: "wrong-e5d20f7a96",
  unauthorized: "bearer-1f6c8e0b3d",
};

before(async () => {
  // The most that it logs: the last test here reads all of it.
  // An image that was pulled under one name is verified when it is asked for by another.
  const config = { imagePullCredentialsVerificationPolicy: "NeverVerify" };
  lab = await startLab("faults-runtime", { args: ["-v=10"], config });
  invariants = createInvariants(lab.cluster);
});
after(async () => {
  await invariants?.[Symbol.asyncDispose]();
  await lab?.[Symbol.asyncDispose]();
});

const seconds = (text: string | undefined): number => Math.floor(Date.parse(text ?? "") / 1000);
const crashing = shell("sleep 1; exit 3");
const named = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `${prefix}-${index}`);

describe("the runtime killed and restarted while 20 pods run", { timeout: 400_000 }, () => {
  const steady = named("steady", 9);
  const probed = named("probed", 3);
  const loops = named("loop", 4);
  const tasks = named("task", 2);

  before(async () => {
    const { pods } = lab;
    const readinessProbe = { exec: { command: ["true"] }, periodSeconds: 1, timeoutSeconds: 20 };
    const drafts: [string, SpecDraft][] = [
      ...steady.map((name, index): [string, SpecDraft] => [
        name,
        index === 0 ? { hostNetwork: true } : index === 1 ? { containers: [{}, {}] } : {},
      ]),
      ...probed.map((name): [string, SpecDraft] => [name, { containers: [{ readinessProbe }] }]),
      ...loops.map((name): [string, SpecDraft] => [name, { containers: [crashing] }]),
      ["victim", {}],
      ["leaver", {}],
    ];
    await Promise.all(drafts.map(([name, spec]) => pods.create(name, spec)));
    await Promise.all([...steady, ...probed, "victim", "leaver"].map((name) => pods.ready(name)));
    await Promise.all(
      loops.map((name) => pods.until(name, "to have restarted", (pod) => (statusOf(pod)?.restartCount ?? 0) > 0)),
    );
  });

  test("leaves running containers alone, reports exits, and catches up on starts and stops at once", async (t) => {
    const { agent, cluster, pods } = lab;
    const ends = join(cluster.layout.dir, "ends");
    mkdirSync(ends);
    const task = shell("until test -e /ends/now; do sleep 0.2; done; sleep 1", {
      volumeMounts: [{ name: "ends", mountPath: "/ends" }],
    });
    const quiet = [...steady, ...probed];
    const standing = await invariants.standing(...quiet);
    const seen = new Map(quiet.map((name) => [name, pods.history(name).length]));
    await Promise.all(
      tasks.map((name) =>
        pods.create(name, {
          restartPolicy: "Never",
          volumes: [{ name: "ends", hostPath: { path: ends } }],
          containers: [task],
        }),
      ),
    );
    const [victim] = await Promise.all([
      pods.ready("victim"),
      ...tasks.map((name) => pods.until(name, "to run", (pod) => pod.status?.phase === "Running")),
    ]);
    const late = pods.create("late", {});

    await cluster.killRuntime();
    writeFileSync(join(ends, "now"), "");
    await must(["kill", "-9", String(firstProcess(cluster, victim))]);
    const killedAt = Math.floor(Date.now() / 1000);
    await late;
    await pods.remove("leaver");
    // The tasks end, the crash loops come round, and probes are due several times.
    await cluster.waitFor("eight seconds without a runtime", () => Math.floor(Date.now() / 1000) >= killedAt + 8);
    await pods.create("later", {});
    await cluster.waitFor("a try to start it", () => /default\/later[^\n]*Error syncing pod/.test(agent.log()));
    await cluster.startRuntime();
    const backAt = Date.now();
    const readyAfter = async (name: string) => {
      await pods.ready(name);
      return Date.now() - backAt;
    };
    await pods.create("fresh", {});
    const [waited, fresh] = await Promise.all([readyAfter("later"), readyAfter("fresh")]);
    t.diagnostic(
      `a pod that waited for the runtime was ready after ${waited} ms; one that came with it, after ${fresh}`,
    );
    // Of its own accord it would be tried again 10 to 15 s after it failed. How long a start takes depends on the machine's load.
    assert.ok(waited < fresh + 6_000, `${waited} ms, where a pod that came with the runtime took ${fresh} ms`);

    const ended = particulars[cluster.provider].remembersEnds(cluster)
      ? { phase: "Succeeded", exitCode: 137, withinSeconds: 4 }
      : { phase: "Failed", exitCode: 255, withinSeconds: 30 };
    const [restarted] = await Promise.all([
      pods.until(
        "victim",
        "to run again",
        (pod) => statusOf(pod)?.state?.running !== undefined && containerId(pod) !== containerId(victim),
      ),
      pods.ready("late"),
      cluster.mustKubectl(["wait", "--for=delete", "pod/leaver", "--timeout=60s"]),
      ...tasks.map((name) => pods.until(name, "to end", (pod) => pod.status?.phase === ended.phase)),
    ]);
    const main = statusOf(restarted);
    assert.deepEqual(
      [main?.restartCount, main?.lastState?.terminated?.exitCode, idOf(main?.lastState?.terminated?.containerID)],
      [1, ended.exitCode, containerId(victim)],
    );
    assert.ok(
      Math.abs(seconds(main?.lastState?.terminated?.finishedAt) - killedAt) <= ended.withinSeconds,
      `ended at ${main?.lastState?.terminated?.finishedAt}, was killed at ${new Date(killedAt * 1000).toISOString()}`,
    );
    await invariants.hold(standing);
    for (const name of quiet) {
      const flaps = pods
        .history(name)
        .slice(seen.get(name))
        .filter((pod) => condition(pod, "Ready")?.status !== "True");
      assert.deepEqual(
        flaps.map(({ status }) => status?.conditions),
        [],
        `${name} was not Ready for a while`,
      );
    }
    for (const name of loops)
      await pods.until(name, "to go on crashing", (pod) => (statusOf(pod)?.restartCount ?? 0) > 1);
    assert.equal(await cluster.mustKubectl(["exec", "steady-2", "--", "echo", "hi"]), "hi\n");
  });
});

describe("pods with missing references", {
  timeout: 400_000,
  concurrency: 4,
}, () => {
  let standing: Awaited<ReturnType<Invariants["standing"]>>;
  before(async () => {
    const { pods } = lab;
    await pods.create("neighbour", {});
    await pods.ready("neighbour");
    standing = await invariants.standing("neighbour");
  });
  after(() => invariants.hold(standing));

  test("a pod with a missing image starts once the image exists", async () => {
    const { cluster, pods } = lab;
    const image = "registry.k8s.io/e2e-test-images/not-there:1";
    await pods.create("no-image", { containers: [{ image, imagePullPolicy: "IfNotPresent" }] });
    await pods.until(
      "no-image",
      "ErrImagePull",
      (pod) =>
        statusOf(pod)?.state?.waiting?.reason === "ErrImagePull" &&
        /not-there:1/.test(statusOf(pod)?.state?.waiting?.message ?? ""),
    );
    await pods.event("no-image", "Failed", /not-there:1/);
    await particulars[cluster.provider].tagImage(cluster, images.busybox, image);
    await pods.ready("no-image");
  });

  test("a pod with a missing command reports it, and starts once the program exists", async () => {
    const { cluster, pods } = lab;
    const { startFailure } = particulars[cluster.provider];
    const path = join(cluster.layout.dir, "programs");
    mkdirSync(path);
    await pods.create("no-command", {
      containers: [{ command: ["/programs/run"], volumeMounts: [{ name: "programs", mountPath: "/programs" }] }],
      volumes: [{ name: "programs", hostPath: { path } }],
    });
    const failing = await pods.until(
      "no-command",
      "to fail to start",
      (pod) => statusOf(pod)?.lastState?.terminated?.reason === startFailure,
    );
    assert.match(
      statusOf(failing)?.lastState?.terminated?.message ?? "",
      /\/programs\/run.*no such file or directory/s,
    );
    await pods.event("no-command", "Failed", /^Error: .*\/programs\/run.*no such file or directory/s);
    await pods.event("no-command", "BackOff", /^Back-off restarting failed container main in pod no-command/);
    writeFileSync(join(path, "run"), "#!/bin/sh\nexec sleep infinity\n", { mode: 0o755 });
    await pods.ready("no-command");
  });

  test("a pod that lacks a ConfigMap key names it, and starts once the key exists", async () => {
    const { cluster, pods } = lab;
    await cluster.apply({ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "settings" }, data: { other: "x" } });
    await pods.create("no-key", {
      containers: [
        {
          ...shell('echo "colour $COLOUR"; exec sleep infinity'),
          env: [{ name: "COLOUR", valueFrom: { configMapKeyRef: { name: "settings", key: "colour" } } }],
        },
      ],
    });
    const failing = await pods.until(
      "no-key",
      "CreateContainerConfigError",
      (pod) => statusOf(pod)?.state?.waiting?.reason === "CreateContainerConfigError",
    );
    assert.equal(statusOf(failing)?.state?.waiting?.message, "couldn't find key colour in ConfigMap default/settings");
    await pods.event("no-key", "Failed", "Error: couldn't find key colour in ConfigMap default/settings");
    await cluster.mustKubectl(["patch", "configmap", "settings", "--patch", '{"data":{"colour":"blue"}}']);
    await pods.ready("no-key");
    await pods.logged("no-key", "colour blue\n");
  });

  test("a pod whose volume lacks its ConfigMap names it, and starts once the ConfigMap exists", async () => {
    const { cluster, pods } = lab;
    await pods.create("no-volume", {
      containers: [
        {
          ...shell("echo $(cat /rules/first); exec sleep infinity"),
          volumeMounts: [{ name: "rules", mountPath: "/rules" }],
        },
      ],
      volumes: [{ name: "rules", configMap: { name: "rules" } }],
    });
    await pods.event("no-volume", "FailedMount", /configmap "rules" not found/);
    await cluster.apply({
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: "rules" },
      data: { first: "be kind" },
    });
    await pods.ready("no-volume");
    await pods.logged("no-volume", "be kind\n");
  });
});

test("logs no secret at any verbosity", { timeout: 300_000 }, async () => {
  const { agent, cluster, pods } = lab;
  const { password } = cluster.privateCredentials;
  await cluster.apply([
    {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name: "hidden" },
      stringData: { env: secrets.env, file: secrets.file },
    },
    pullSecret(cluster, "right"),
    pullSecret(cluster, "wrong", secrets.wrongPassword),
  ]);
  const withSecrets: SpecDraft = {
    volumes: [{ name: "hidden", secret: { secretName: "hidden" } }],
    containers: [
      {
        env: [{ name: "HIDDEN", valueFrom: { secretKeyRef: { name: "hidden", key: "env" } } }],
        envFrom: [{ secretRef: { name: "hidden" } }],
        volumeMounts: [{ name: "hidden", mountPath: "/hidden" }],
      },
    ],
  };
  const [container] = withSecrets.containers ?? [];
  await Promise.all([
    pods.create("keeper", {
      ...withSecrets,
      containers: [{ ...container, image: cluster.privateImage }],
      imagePullSecrets: [{ name: "right" }],
    }),
    pods.create("refused", {
      ...withSecrets,
      containers: [{ ...container, image: cluster.privateImage, imagePullPolicy: "Always" }],
      imagePullSecrets: [{ name: "wrong" }],
    }),
    pods.create("failing", { ...withSecrets, containers: [{ ...container, command: ["/no/such/command"] }] }),
    pods.create("lacking", {
      ...withSecrets,
      containers: [
        { ...container, env: [{ name: "HIDDEN", valueFrom: { secretKeyRef: { name: "hidden", key: "other" } } }] },
      ],
    }),
  ]);
  await Promise.all([
    pods.ready("keeper"),
    pods.event("refused", "Failed", /Failed to pull image/),
    pods.event("failing", "Failed", /no such file/),
    pods.until(
      "lacking",
      "CreateContainerConfigError",
      (pod) => statusOf(pod)?.state?.waiting?.reason === "CreateContainerConfigError",
    ),
  ]);
  assert.equal(
    await cluster.mustKubectl(["exec", "keeper", "--", "sh", "-c", "echo $HIDDEN $(cat /hidden/file) $FROM"]),
    `${secrets.env} ${secrets.file} private\n`,
  );
  const token = await cluster.mustKubectl([
    "exec",
    "keeper",
    "--",
    "cat",
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
  ]);
  assert.match(token, /^ey.*\..*\./);
  const adminToken = (await cluster.mustKubectl(["create", "token", "default"])).trim();
  for (const bearer of [adminToken, secrets.unauthorized]) {
    const { stdout } = await cluster.runAtAgent([
      "curl",
      "--silent",
      "--insecure",
      "--header",
      `Authorization: Bearer ${bearer}`,
      "--write-out",
      "%{http_code}",
      "--output",
      "/dev/null",
      "https://127.0.0.1:10250/pods",
    ]);
    assert.match(stdout, /^40[13]$/);
  }
  await cluster.mustKubectl(["delete", "secret", "hidden"]);
  await cluster.apply({
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: "hidden" },
    stringData: { env: secrets.env, file: `${secrets.file}-newer` },
  });
  await cluster.waitFor(
    "the new secret in the pod",
    async () =>
      (await cluster.kubectl(["exec", "keeper", "--", "cat", "/hidden/file"])).stdout === `${secrets.file}-newer`,
    90_000,
  );

  const log = agent.log();
  assert.ok(
    ["failing", "refused", "lacking"].every((name) => log.includes(`"pod":"default/${name}"`)),
    "the log tells of these pods",
  );
  const words = [...Object.values(secrets), password, token, adminToken];
  for (const word of words) {
    const line = log.split("\n").find((text) => waysToWrite(word).some((written) => text.includes(written)));
    assert.equal(line, undefined, `${word} is in the log`);
  }
});

/** How a word may stand in a log: as it is, as bytes, in hex, and in base64 wherever it begins in what was encoded. */
function waysToWrite(word: string): string[] {
  const bytes = Buffer.from(word);
  const encoded = [0, 1, 2].map((before) => {
    const text = base64("\0".repeat(before) + word);
    return text.slice(Math.ceil((before * 8) / 6), Math.floor(((before + bytes.length) * 8) / 6));
  });
  return [word, bytes.join(","), bytes.toString("hex"), ...encoded];
}

function base64(text: string): string {
  return Buffer.from(text).toString("base64");
}

function idOf(containerID = ""): string {
  return containerID.slice(containerID.indexOf("://") + 3);
}
