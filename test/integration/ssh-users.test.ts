import assert from "node:assert/strict";
import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { CoreEvent, Node, Pod } from "../../src/objects.ts";
import { type AgentOptions, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import type { Lab } from "../harness/lab.ts";
import { condition, openPods, type SpecDraft, shell, statusOf } from "../harness/pods.ts";
import { listProcesses, textOf } from "../harness/processes.ts";
import { addTargetUser, type TargetUser } from "../harness/target-user.ts";
import type { ProviderName } from "../harness/runtime-daemon.ts";

interface UserLab extends Lab {
  readonly user: TargetUser;
}

/** A cluster whose target graftlet reaches as that user alone: root's key is not taken. */
async function startUserLab(
  provider: ProviderName,
  can: "sudo" | "docker",
  options: (user: TargetUser) => AgentOptions = () => ({}),
): Promise<UserLab> {
  await using stack = new AsyncDisposableStack();
  const cluster = stack.use(await startCluster({ name: `ssh-${can}`, provider }));
  const user = await addTargetUser(cluster, "deploy", can);
  await cluster.killSshd();
  await cluster.startSshd(["PermitRootLogin no"]);
  const { providerConfig, ...more } = options(user);
  const agent = stack.use(
    await startGraftlet(cluster, { ...more, providerConfig: { user: user.name, ...providerConfig } }),
  );
  const pods = stack.use(await openPods(cluster));
  const whole = stack.move();
  return { cluster, agent, pods, user, [Symbol.asyncDispose]: () => whole.disposeAsync() };
}

async function privileges(cluster: Cluster): Promise<readonly [status: string, message: string]> {
  const node = await cluster.get<Node>("node", cluster.nodeName);
  const found = node?.status?.conditions?.find(({ type }) => type === "TargetPrivileges");
  return [found?.status ?? "", found?.message ?? ""];
}

const secretVolume: SpecDraft = {
  volumes: [{ name: "secret", secret: { secretName: "word" } }],
  containers: [
    shell("cat /secret/word; echo; httpd -f -p 8080", {
      volumeMounts: [{ name: "secret", mountPath: "/secret" }],
      readinessProbe: { tcpSocket: { port: 8080 }, periodSeconds: 1 },
    }),
  ],
};

/** A pod's life: its volume, log, exec, probe and end. @returns the pod while it was ready. */
async function liveWithSecret({ cluster, pods }: Lab): Promise<Pod> {
  await cluster.apply({ apiVersion: "v1", kind: "Secret", metadata: { name: "word" }, stringData: { word: "xyzzy" } });
  await pods.create("secretive", secretVolume);
  const pod = await pods.ready("secretive");
  await pods.logged("secretive", "xyzzy\n");
  assert.equal(await cluster.mustKubectl(["exec", "secretive", "--", "cat", "/secret/word"]), "xyzzy");
  return pod;
}

async function endsWithoutTrace({ cluster, pods }: Lab, pod: Pod, directory: string): Promise<void> {
  const gone = pods.gone(pod.metadata.name);
  await pods.remove(pod.metadata.name);
  await gone;
  await cluster.waitFor("the pod's directory to be gone", () => !existsSync(directory));
}

describe("a user with sudo", { timeout: 500_000 }, () => {
  let lab: UserLab;
  before(async () => void (lab = await startUserLab("ssh", "sudo")));
  after(() => lab?.[Symbol.asyncDispose]());

  test("a login with sudo has every privilege that a node needs: pods run, and secrets are in memory", async () => {
    const { cluster } = lab;
    assert.deepEqual(await privileges(cluster), [
      "True",
      "the login user has all privileges on the target that a node needs",
    ]);
    const pod = await liveWithSecret(lab);
    const directory = join(cluster.layout.kubeletRoot, "pods", pod.metadata.uid);
    const mounts = await cluster.runInside(["cat", "/proc/self/mountinfo"]);
    assert.match(mounts.stdout, new RegExp(` ${directory}/volumes/kubernetes.io~secret/secret .* - tmpfs `));
    // Nobody but the user is logged in, and files are served to root by a program that sudo started.
    const commands = sshdChildren(cluster);
    assert.ok(
      commands.some((line) => /^sshd(-session)?: deploy/.test(line)),
      commands.join("\n"),
    );
    assert.ok(!commands.some((line) => /^sshd(-session)?: root/.test(line)), commands.join("\n"));
    assert.ok(
      commands.some((line) => line.includes("sftp-server")),
      commands.join("\n"),
    );
    await endsWithoutTrace(lab, pod, directory);
  });
});

describe("a user in the docker group", { timeout: 500_000 }, () => {
  let lab: UserLab;
  before(async () => {
    lab = await startUserLab("ssh-docker", "docker", ({ home }) => ({
      providerConfig: { rootDir: join(home, "graftlet") },
      config: { podLogsDir: join(home, "pod-logs") },
    }));
  });
  after(() => lab?.[Symbol.asyncDispose]());

  test("makes the node Ready, and names the missing privileges and the remedy in a condition", async () => {
    const [status, message] = await privileges(lab.cluster);
    assert.equal(status, "False");
    assert.match(
      message,
      /^User deploy on the target is not root(?: and its sudo asks for a password)?, so volumes cannot be mounted and cgroups cannot be created: add the line `deploy ALL=\(ALL\) NOPASSWD: ALL` to its sudoers, or log in as root\./,
    );
  });

  test("runs pods whose secrets are in a private directory on disk, which an event reports", async () => {
    const { cluster, pods, user } = lab;
    const pod = await liveWithSecret(lab);
    const directory = join(user.home, "graftlet", "pods", pod.metadata.uid);
    const secrets = join(directory, "volumes", "kubernetes.io~secret");
    assert.equal(statSync(secrets).mode & 0o777, 0o700);
    assert.equal(readFileSync(join(secrets, "secret", "word"), "utf8"), "xyzzy");
    const { items } = await pods.api.get<{ items: CoreEvent[] }>("/api/v1/namespaces/default/events");
    const told = items.filter(({ reason }) => reason === "PossibleMemoryBackedVolumesOnDisk");
    assert.deepEqual([...new Set(told.map(({ involvedObject }) => involvedObject.name))], [cluster.nodeName]);
    await endsWithoutTrace(lab, pod, directory);
  });

  test("holds a pod that needs files of another owner, and reports why", async () => {
    const { pods } = lab;
    await pods.create("owner", { securityContext: { runAsUser: 1000 } });
    const { message } = await pods.event("owner", "UnsupportedField");
    assert.match(message ?? "", /graftlet's login is not root there/);
    assert.equal(statusOf(await pods.until("owner", "to be known", () => true))?.state?.running, undefined);
    assert.notEqual(condition(await pods.until("owner", "to be known", () => true), "Ready")?.status, "True");
    await pods.create("tokenless", { securityContext: { runAsUser: 1000 }, automountServiceAccountToken: false });
    await pods.ready("tokenless");
  });
});

/** The command lines of what runs on the target for those who are logged in. */
function sshdChildren({ layout }: Cluster): string[] {
  const netns = statSync(layout.netns).ino;
  return listProcesses()
    .filter((entry) => entry.netns === netns)
    .map(({ pid }) => textOf(`/proc/${pid}/cmdline`).replaceAll("\0", " ").trim());
}
