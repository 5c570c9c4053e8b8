import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { startGraftlet } from "../harness/agent.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { configMap, mount, secret } from "../harness/manifests.ts";
import { podFolder, podMounts, volumeFolder } from "../harness/pod-machine.ts";
import { type ContainerDraft, shell, statusOf } from "../harness/pods.ts";
import { volumesLab } from "../harness/volumes.ts";

let lab: Lab;
/** A folder of the machine's that is no pod's business. */
let outside: string;
before(async () => {
  lab = await startLab("volumes", volumesLab);
  outside = join(lab.cluster.layout.dir, "outside");
  mkdirSync(outside);
  writeFileSync(join(outside, "secret"), "of the machine");
});
after(() => lab?.[Symbol.asyncDispose]());

const data = [{ name: "data", emptyDir: {} }];
const whole = mount("data");
const part = (subPath: string, more = {}) => mount("data", { mountPath: "/part", subPath, ...more });

/** An init container that lays out the volume `data`. */
const layOut = (script: string): ContainerDraft => shell(`cd /data; ${script}`, { volumeMounts: [whole] });

describe("subPath mounts", { concurrency: 4 }, () => {
  test("subPath mounts mount a directory, a file, a missing path, a path named by the environment, and a path of a read-only volume", async () => {
    const { cluster, pods } = lab;
    await cluster.apply([
      configMap("parts", { "app.conf": "x=1\n", other: "none" }),
      secret("parts", { key: "s3cret" }),
    ]);
    const script =
      "cd /; ls dir; cat file; ls -d named/mine; ls /etc/app; cat /etc/app/app.conf key; touch key 2>&1; stat -c %a made named; echo new > made/new; echo more >> file; ls data/new/deep; cat data/a/c";
    const text = await pods.output(
      "parts",
      shell(script, {
        env: [{ name: "WHO", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } }],
        volumeMounts: [
          mount("data", { mountPath: "/dir", subPath: "a/b" }),
          mount("data", { mountPath: "/file", subPath: "a/c" }),
          mount("data", { mountPath: "/made", subPath: "new/deep" }),
          mount("data", { mountPath: "/named", subPathExpr: "of/$(WHO)" }),
          mount("map", { mountPath: "/etc/app/app.conf", subPath: "app.conf" }),
          mount("secret", { mountPath: "/key", subPath: "key" }),
          mount("data"),
        ],
      }),
      {
        volumes: [
          ...data,
          { name: "map", configMap: { name: "parts" } },
          { name: "secret", secret: { secretName: "parts" } },
        ],
        initContainers: [layOut("mkdir -p a/b of/parts/mine; echo text > a/c; touch a/b/within")],
      },
    );
    assert.equal(
      text,
      "within\ntext\nnamed/mine\napp.conf\nx=1\ns3crettouch: key: Read-only file system\n777\n755\nnew\ntext\nmore\n",
    );
  });

  test("a restarted container sees the current content: an object's newer version, a file in place of a directory", async () => {
    const { cluster, pods } = lab;
    await cluster.apply([configMap("aging", { key: "one" })]);
    await pods.create("again", {
      volumes: [...data, { name: "map", configMap: { name: "aging" } }],
      initContainers: [layOut("mkdir it")],
      containers: [
        shell(
          "cat /key; stat -c %F /part; cd /data; if [ -d it ]; then rmdir it; touch it; fi; until [ -e go ]; do sleep 0.1; done; rm go",
          { volumeMounts: [whole, part("it"), mount("map", { mountPath: "/key", subPath: "key" })] },
        ),
      ],
    });
    const pod = await pods.ready("again");
    const map = volumeFolder(cluster, pod, "configmap", "map");
    const before = readdirSync(map).find((name) => /^\.\.\d/.test(name));
    await cluster.apply([configMap("aging", { key: "two" })]);
    await cluster.waitFor("the new version", () => before !== undefined && !existsSync(join(map, before)));
    assert.equal(await cluster.mustKubectl(["exec", "again", "--", "cat", "/key"]), "one");
    await cluster.mustKubectl(["exec", "again", "--", "touch", "/data/go"]);
    await pods.until(
      "again",
      "to have started again",
      (one) => statusOf(one)?.restartCount === 1 && statusOf(one)?.state?.running !== undefined,
    );
    await pods.logged("again", "tworegular empty file\n");
  });

  const refused: readonly (readonly [what: string, layOut: string, subPath: string, step: string])[] = [
    ["a link that leads out of the volume", "ln -s $OUT it", "it", "prepare subPath"],
    ["a link that leads to a parent directory", "ln -s ../../../../.. it", "it/pods", "prepare subPath"],
    ["a missing directory behind a link", "ln -s $OUT it", "it/new", "create subPath directory"],
    ["a dangling link", "ln -s none it", "it", "create subPath directory"],
    ["a FIFO in place of a directory", "mkfifo it", "it/x", "prepare subPath"],
    ["a file in place of a directory", "touch it", "it/x", "prepare subPath"],
  ];
  for (const [index, [what, script, subPath, step]] of refused.entries())
    test(`${what} prevents a container's start, with the kubelet's message, until it is removed`, async () => {
      const { cluster, pods } = lab;
      const name = `refused-${index}`;
      await pods.create(name, {
        volumes: data,
        initContainers: [layOut(script.replace("$OUT", outside))],
        containers: [{ volumeMounts: [whole] }, { name: "parted", volumeMounts: [part(subPath)] }],
      });
      const why = `failed to ${step} for volumeMount "data" of container "parted"`;
      const waiting = await pods.until(
        name,
        "the container to be refused",
        (one) => statusOf(one, "parted")?.state?.waiting?.reason === "CreateContainerConfigError",
      );
      assert.equal(statusOf(waiting, "parted")?.state?.waiting?.message, why);
      await pods.event(name, "Failed", `Error: ${why}`);
      assert.deepEqual(
        podMounts(cluster, waiting).filter((path) => path.includes("volume-subpaths")),
        [],
      );
      await cluster.mustKubectl(["exec", name, "-c", "main", "--", "rm", "/data/it"]);
      await pods.ready(name);
      assert.deepEqual(readdirSync(outside), ["secret"]);
    });

  test("subPath mounts accept a FIFO and a link that stays in the volume", async () => {
    const { pods } = lab;
    const text = await pods.output(
      "odd",
      shell("stat -c %F /part; ls /linked", {
        volumeMounts: [part("fifo"), mount("data", { mountPath: "/linked", subPath: "link" })],
      }),
      { volumes: data, initContainers: [layOut("mkfifo fifo; mkdir -p to; touch to/within; ln -s to link")] },
    );
    assert.equal(text, "fifo\nwithin\n");
  });

  test("a directory that a container swaps with a link never leads outside, and everything is removed with the pod", async () => {
    const { cluster, pods } = lab;
    const victims = Array.from({ length: 16 }, (_, index) =>
      shell("ls /part; exec sleep infinity", { name: `victim-${index}`, volumeMounts: [part("way")] }),
    );
    const swap = `cd /data; while :; do mv way aside; ln -s ${outside} way; rm way; mv aside way; done`;
    await pods.create("attack", {
      volumes: data,
      initContainers: [layOut("mkdir way; touch way/mine")],
      containers: [shell(swap, { name: "attacker", volumeMounts: [whole] }), ...victims],
    });
    const stateOf = (name = "") => statusOf(pods.history("attack").at(-1) ?? assert.fail(), name)?.state;
    const pod = await pods.until(
      "attack",
      "some to start and some to be refused",
      () =>
        victims.filter(({ name }) => stateOf(name)?.running).length >= 3 &&
        pods
          .history("attack")
          .some((one) =>
            victims.some(({ name }) => statusOf(one, name)?.state?.waiting?.message?.startsWith("failed to ")),
          ),
      180_000,
    );
    for (const { name } of victims.filter((victim) => stateOf(victim.name)?.running)) {
      const listed = await cluster.mustKubectl(["exec", "attack", "-c", name ?? "", "--", "ls", "/part"]);
      assert.doesNotMatch(listed + (await pods.log("attack", `container=${name}`)), /secret/);
    }
    const folder = podFolder(cluster, pod);
    assert.ok(podMounts(cluster, pod).some((path) => path.includes("/volume-subpaths/data/victim-")));
    const gone = pods.gone("attack", () => existsSync(folder) && readdirSync(folder));
    await pods.remove("attack");
    const { found } = await gone;
    assert.ok(found === false || !found.includes("volume-subpaths"), String(found));
    assert.deepEqual(podMounts(cluster, pod), []);
    assert.equal(readdirSync(outside).join(), "secret");
  });
});

test("a restarted graftlet unmounts the bind mounts of the previous process", async () => {
  const { cluster, pods } = lab;
  await pods.create("left", { volumes: data, containers: [{ volumeMounts: [part("it")] }] });
  const pod = await pods.ready("left");
  assert.equal(podMounts(cluster, pod).filter((path) => path.includes("/volume-subpaths/data/main/")).length, 1);
  await lab.agent.kill("SIGKILL");
  await pods.remove("left");
  const gone = pods.gone("left");
  await using _agent = await startGraftlet(cluster, { args: ["-v=6"] });
  await gone;
  assert.deepEqual(podMounts(cluster, pod), []);
  await cluster.waitFor("the pod's directory to be gone", () => !existsSync(podFolder(cluster, pod)));
});
