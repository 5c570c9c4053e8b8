import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { parse, stringify } from "yaml";
import type { Node } from "../../src/objects.ts";
import { type Agent, kubeletConfiguration, startGraftlet } from "../harness/agent.ts";
import { certificatesIn } from "../harness/certificates.ts";
import { leastCpuMs, promptMs } from "../harness/cpu-time.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { issueDated } from "../harness/dated-certificate.ts";
import { addresses } from "../harness/namespaces.ts";
import { must } from "../harness/processes.ts";
import { isRemote } from "../harness/runtime-daemon.ts";
import { runToEnd } from "../harness/graftlet-run.ts";

const project = join(import.meta.dirname, "..", "..");
const built = join(project, "dist", "graftlet.mjs");

describe("start-up of graftlet", { timeout: 900_000 }, () => {
  let cluster: Cluster;
  let kubeconfig: string;
  /** The arguments of a node that would start. */
  let sound: readonly string[];

  const writeConfig = (name: string, fields: object): string => {
    const path = join(cluster.layout.dir, name);
    writeFileSync(path, stringify({ ...kubeletConfiguration(cluster), ...fields }));
    return path;
  };
  const readyCondition = async () => {
    const node = await cluster.get<Node>("node", cluster.nodeName);
    return node?.status?.conditions?.find(({ type }) => type === "Ready");
  };
  const untilReady = (agent: Agent) =>
    cluster.waitFor("the node to be Ready", async () => (await readyCondition())?.status === "True", {
      timeoutMs: 60_000,
      explain: () => agent.log(),
    });
  /** Exit code 1 and one sentence. */
  const refused = async (args: readonly string[], sentence: RegExp) => {
    const { code, said } = await runToEnd(cluster, args);
    assert.equal(said.length, 1, said.join("\n"));
    assert.match(said[0] ?? "", sentence);
    assert.equal(code, 1);
  };

  before(async () => {
    await must([process.execPath, join(project, "tools", "build.ts")], { timeoutMs: 240_000 });
    cluster = await startCluster({ name: "startup" });
    kubeconfig = await cluster.kubeconfigFor(cluster.nodeName);
    sound = [
      `--config=${writeConfig("sound.yaml", {})}`,
      `--kubeconfig=${kubeconfig}`,
      `--hostname-override=${cluster.nodeName}`,
      `--root-dir=${cluster.layout.kubeletRoot}`,
      `--node-ip=${addresses.node}`,
    ];
  });
  after(async () => cluster?.[Symbol.asyncDispose]());

  test("--version and --help work from source and from the bundle, where they take under 0.3 s", async () => {
    for (const file of [join(project, "src", "main.ts"), built]) {
      assert.match(await must([process.execPath, file, "--version"]), /^Kubernetes v1\.36\.\d+ \(graftlet [\d.]+\)\n$/);
      const help = await must([process.execPath, file, "--help"]);
      for (const flag of ["--config", "--kubeconfig", "--provider", "--nodes", "--node-labels", "--feature-gates"])
        assert.ok(help.includes(flag), flag);
    }
    const allowedMs = await promptMs();
    for (const flag of ["--version", "--help"]) {
      const spentMs = await leastCpuMs([process.execPath, built, flag]);
      assert.ok(spentMs < allowedMs, `${flag} took ${spentMs} ms, where ${allowedMs} ms are allowed`);
    }
  });

  test("the bundle is one file that needs nothing else, with licence notices", async () => {
    assert.match(readFileSync(join(project, "dist", "THIRD-PARTY-NOTICES.txt"), "utf8"), /@grpc\/grpc-js/);
    const alone = join(cluster.layout.dir, "graftlet.mjs");
    writeFileSync(alone, readFileSync(built));
    assert.match(await must([process.execPath, alone, "--version"]), /graftlet/);
  });

  test("refuses an invalid command line with one sentence that names setting, value and remedy", async () => {
    const late = (...args: readonly string[]) => [...sound, ...args];
    await refused([], /^graftlet: --kubeconfig is not given: .*; set --kubeconfig to the path of a kubeconfig$/);
    await refused(
      ["--kubeconfig=/no/such"],
      /^graftlet: --kubeconfig is "\/no\/such": there is no such file; set the path of an existing one$/,
    );
    await refused(
      late("--no-such-flag=1"),
      /^graftlet: --no-such-flag is not a flag of graftlet; --help lists the flags$/,
    );
    await refused(
      late("--feature-gates=NoSuchGate=true"),
      /^graftlet: featureGates\.NoSuchGate \(--feature-gates\) is true: .*no such feature gate; leave it out$/,
    );
    await refused(late("--provider=nowhere"), /^graftlet: .*--provider "nowhere" is not known: use one of cri/);
  });

  test("refuses an invalid configuration: an unknown field, a wrong type, an impossible value", async () => {
    const withField = (fields: object) => [...sound.slice(1), `--config=${writeConfig("wrong.yaml", fields)}`];
    await refused(withField({ maxPodz: 5 }), /wrong\.yaml: maxPodz .*(no such field|not a field|unknown)/);
    await refused(
      withField({ maxPods: "many" }),
      /wrong\.yaml: maxPods \(--max-pods\) is "many": expected a whole number/,
    );
    await refused(withField({ port: 70_000 }), /port.* is 70000: /);
  });

  test("refuses invalid thresholds with the kubelet's messages", async () => {
    const wrong: readonly (readonly [object, RegExp])[] = [
      [{ evictionHard: { "memory.free": "1Gi" } }, /unsupported eviction signal memory\.free: /],
      [{ evictionHard: { "memory.available": "110%" } }, /memory\.available must be <= 100%: 110%$/],
      [{ evictionHard: { "nodefs.available": "-1%" } }, /nodefs\.available must be >= 0%: -1%$/],
      [
        { evictionSoft: { "memory.available": "1Gi" } },
        /grace period must be specified for the soft .*memory\.available/,
      ],
      [
        { evictionMinimumReclaim: { "nodefs.available": "-1" } },
        /negative eviction minimum reclaim specified for nodefs/,
      ],
      [
        { imageGCHighThresholdPercent: 70 },
        /imageGCLowThresholdPercent .* is 99: set it below imageGCHighThresholdPercent, which is 70$/,
      ],
    ];
    for (const [fields, sentence] of wrong)
      await refused([...sound.slice(1), `--config=${writeConfig("thresholds.yaml", fields)}`], sentence);
  });

  test("refuses an expired client certificate", async () => {
    await refused(
      [...sound, `--kubeconfig=${await expired(cluster, kubeconfig)}`],
      /the client certificate \(.*\) expired at 2020-01-02T00:00:00\.000Z; renew it$/,
    );
  });

  test("refuses a root directory that is not writable", async () => {
    await refused(
      [...sound, "--root-dir=/sys/graftlet"],
      /--root-dir "\/sys\/graftlet" is not writable \(.*\): make it writable, or use another directory$/,
    );
  });

  test("refuses kernel settings that differ from a kubelet's with protectKernelDefaults, and changes none", async () => {
    const readPanic = async () => (await cluster.runInside(["cat", "/proc/sys/kernel/panic"])).stdout.trim();
    const panic = await readPanic();
    const config = `--config=${writeConfig("protected.yaml", { protectKernelDefaults: true })}`;
    // A kubelet that ran on this machine has set them all.
    if (panic === "10") return;
    const flag = `invalid kernel flag: kernel/panic, expected value: 10, actual value: ${panic}`;
    await refused([...sound.slice(1), config], new RegExp(`^graftlet: node .*${flag}`));
    assert.equal(await readPanic(), panic);
  });

  test("refuses a port in use by any listener", async () => {
    for (const [port, field] of [
      [10_250, "port"],
      [10_248, "healthzPort"],
    ] as const) {
      await using _other = await listen(cluster, port, "");
      await refused(
        sound,
        new RegExp(
          `: ${field} ${port} is taken on .*: stop the program that listens there .* or set another ${field}$`,
        ),
      );
      const query = ["get", "events", "--field-selector=reason=KubeletSetupFailed", "--output=yaml"];
      assert.match(await cluster.mustKubectl(query), new RegExp(`message: .*${field} ${port} is taken on `));
    }
  });

  test("refuses a target on which another agent answers on the health port", async () => {
    await using _kubelet = await listen(cluster, 10_248, "HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok");
    await refused(sound, /another agent answers on the target's port 10248 \(RuntimeInUse\): stop /);
  });

  test("without an API server, the bundle warns once and retries, and registers once the API server is reachable", async () => {
    await cluster.stopApiServer();
    await using agent = await startGraftlet(cluster, { built: true, untilReady: false });
    const complaints = () =>
      agent
        .log()
        .split("\n")
        .filter((line) => /"level":[45]0/.test(line) && /API server|registered/.test(line));
    await cluster.waitFor("a word about the API server", () => complaints().length > 0, {
      explain: () => agent.log(),
    });
    await cluster.startApiServer();
    await untilReady(agent);
    assert.equal(complaints().length, 1, complaints().join("\n"));
    // A thread reads it: in the built program that is the one file, too.
    const manifest = {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name: "x", annotations: { a: "x".repeat(50_000) } },
    };
    writeFileSync(join(cluster.layout.staticPods, "large.yaml"), stringify(manifest));
    await cluster.waitFor("a word about the manifest", () => /its kind is .*Secret/.test(agent.log()), {
      explain: () => agent.log(),
    });
    rmSync(join(cluster.layout.staticPods, "large.yaml"));

    await refused(
      [...sound, "--hostname-override=other"],
      /--root-dir ".*" is in use by another graftlet \(RuntimeInUse\): stop that one, or use another directory$/,
    );
    // Over SSH graftlet's own health port is not the target's: there nobody sees it.
    if (!isRemote(cluster.provider))
      await refused(
        [...sound, `--root-dir=${join(cluster.layout.dir, "elsewhere")}`],
        // Where the runtime is one node's alone they meet there, else at the port.
        /(another agent answers on the target's port 10248|the container runtime in \S+ on the target is in use by another graftlet) \(RuntimeInUse\): /,
      );
    assert.equal((await readyCondition())?.status, "True");
    assert.equal(await agent.stop(), true);
    assert.deepEqual(await agent.ended, { code: 0, signal: null });
  });

  test("without a name server, graftlet runs and exits as usual, and reports a host name that does not resolve", async () => {
    const nodeName = "late-name";
    const hosts = join(cluster.layout.dir, "late-hosts");
    const resolvConf = join(cluster.layout.dir, "late-resolv.conf");
    const localhost = "127.0.0.1 localhost\n";
    writeFileSync(hosts, localhost);
    // The system's own look-up would take a minute.
    writeFileSync(resolvConf, "nameserver 127.0.0.9\noptions timeout:20 attempts:3\n");
    const mounts = `mount --bind ${hosts} /etc/hosts; mount --bind ${resolvConf} /etc/resolv.conf; exec "$@"`;
    const through = ["unshare", "--mount", "sh", "-ec", mounts, "sh"];
    await using _silent = await listenSilently(cluster, "127.0.0.9", 53);
    const start = () => startGraftlet(cluster, { nodeName, through, untilReady: false });
    const named = async () =>
      (await cluster.get<Node>("node", nodeName))?.status?.addresses?.some(({ type }) => type === "Hostname");
    {
      await using agent = await start();
      const until = (what: string, done: () => boolean | Promise<boolean | undefined>) =>
        cluster.waitFor(what, done, { timeoutMs: 30_000, explain: () => agent.log() });
      await until("the kubelet API", () => agent.log().includes("kubelet API listening"));
      await until("the Node", async () => (await named()) === false);
      writeFileSync(hosts, `${localhost}127.0.0.1 ${nodeName}\n`);
      await until("the Hostname address", named);
      assert.equal(await agent.stop(10_000), true, agent.log());
    }
    writeFileSync(hosts, localhost);
    await using again = await start();
    await cluster.waitFor("the name servers' silence", () => again.log().split("cannot reload").length > 2, {
      timeoutMs: 60_000,
      explain: () => again.log(),
    });
    assert.equal(await named(), true);
    assert.equal(await again.stop(10_000), true, again.log());
  });

  test("exits promptly although the API server's name does not resolve", async () => {
    const resolvConf = join(cluster.layout.dir, "silent-resolv.conf");
    writeFileSync(resolvConf, "nameserver 127.0.0.9\noptions timeout:20 attempts:3\n");
    const mount = `mount --bind ${resolvConf} /etc/resolv.conf; exec "$@"`;
    const elsewhere = join(cluster.layout.dir, "elsewhere.kubeconfig");
    writeFileSync(elsewhere, readFileSync(kubeconfig, "utf8").replace(/(server: https:\/\/)[^:]+/, "$1no-such-name"));
    await using silent = await listenSilently(cluster, "127.0.0.9", 53);
    await using agent = await startGraftlet(cluster, {
      through: ["unshare", "--mount", "sh", "-ec", mount, "sh"],
      kubeconfig: elsewhere,
      untilReady: false,
    });
    await silent.asked;
    assert.equal(await agent.stop(10_000), true, agent.log());
  });

  test("reports a missing runtime once as the reason for NotReady, and becomes Ready when it is up; drop-ins override the file, flags override both", async () => {
    const dropIns = join(cluster.layout.dir, "drop-ins");
    mkdirSync(dropIns);
    const part = (fields: object) =>
      stringify({ apiVersion: "kubelet.config.k8s.io/v1beta1", kind: "KubeletConfiguration", ...fields });
    writeFileSync(join(dropIns, "20.conf"), part({ maxPods: 31, podPidsLimit: 200 }));
    writeFileSync(join(dropIns, "10.conf"), part({ maxPods: 32, nodeStatusMaxImages: 3 }));
    writeFileSync(join(dropIns, "30.txt"), part({ maxPods: 33 }));
    await cluster.killRuntime();
    await using agent = await startGraftlet(cluster, {
      untilReady: false,
      config: { maxPods: 30, enableControllerAttachDetach: false },
      args: [`--config-dir=${dropIns}`, "--pod-max-pids=300"],
    });
    const why = await cluster.waitFor(
      "the node to say that its runtime is down",
      async () => {
        const condition = await readyCondition();
        return condition?.status === "False" && /container runtime is down/.test(condition.message ?? "") && condition;
      },
      { timeoutMs: 60_000, explain: () => agent.log() },
    );
    assert.equal(why.reason, "KubeletNotReady");
    await cluster.startRuntime();
    await untilReady(agent);
    // The log is that of all agents of this node.
    const log = agent.log();
    const said = log.slice(log.lastIndexOf('"graftlet is starting"')).split("\n");
    assert.equal(said.filter((line) => line.includes("container runtime does not respond")).length, 1);
    const warnings = said.filter((line) => line.includes('"level":40') && /enableControllerAttachDetach\b/.test(line));
    assert.equal(warnings.length, 1, warnings.join("\n"));
    assert.match(warnings[0] ?? "", /enableControllerAttachDetach .*is not supported/);
    const defaults = said.filter((line) => line.includes("some kubelet defaults are not supported"));
    assert.equal(defaults.length, 1, defaults.join("\n"));
    assert.match(defaults[0] ?? "", /kernel settings/);
    const { kubeletconfig } = JSON.parse(
      await cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/configz`]),
    ) as { kubeletconfig: Record<string, unknown> };
    assert.deepEqual(
      [kubeletconfig["maxPods"], kubeletconfig["nodeStatusMaxImages"], kubeletconfig["podPidsLimit"]],
      [31, 3, 300],
    );
    assert.equal(kubeletconfig["imagePullCredentialsVerificationPolicy"], "NeverVerifyPreloadedImages");
    assert.equal((await cluster.get<Node>("node", cluster.nodeName))?.status?.capacity?.["pods"], "31");
  });
});

/** A program that listens on a port of the cluster's machine and answers what is said to it with `answer`. */
async function listen(cluster: Cluster, port: number, answer: string): Promise<AsyncDisposable> {
  const script = `require("net").createServer((c) => c.on("error", () => {}).on("data", () => ${answer ? `c.end("${answer}")` : "undefined"})).listen(${port}, "0.0.0.0", () => console.log("listening"))`;
  return spawnListener(cluster.spawnInside, script);
}

/** A name server on the agent's machine that hears and does not answer. */
async function listenSilently(cluster: Cluster, address: string, port: number): Promise<Listener> {
  const script = `require("dgram").createSocket("udp4").on("message", () => console.log("asked")).bind(${port}, "${address}", () => console.log("listening"))`;
  return spawnListener(cluster.spawnAtAgent, script);
}

interface Listener extends AsyncDisposable {
  /** Resolves once it has said something more. */
  readonly asked: Promise<unknown>;
}

/** @param script says a word once it listens. */
async function spawnListener(spawn: Cluster["spawnInside"], script: string): Promise<Listener> {
  const child = spawn([process.execPath, "--eval", script], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  await new Promise((resolve) => child.stdout?.once("data", resolve));
  return {
    asked: new Promise((resolve) => child.stdout?.once("data", resolve)),
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

/** A copy of a kubeconfig whose client certificate, by the cluster's own authority, ended in 2020. */
async function expired(cluster: Cluster, kubeconfig: string): Promise<string> {
  const { ca } = certificatesIn(cluster.layout.pki);
  const { certificate, key } = await issueDated(ca, {
    subject: `O=system:nodes, CN=system:node:${cluster.nodeName}`,
    notBefore: new Date("2020-01-01T00:00:00Z"),
    notAfter: new Date("2020-01-02T00:00:00Z"),
  });
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const config = parse(readFileSync(kubeconfig, "utf8")) as { users: { user: object }[] };
  config.users = config.users.map((user) => ({
    ...user,
    user: { "client-certificate-data": base64(certificate), "client-key-data": base64(key) },
  }));
  const path = join(cluster.layout.dir, "expired.kubeconfig");
  writeFileSync(path, stringify(config), { mode: 0o600 });
  return path;
}
