import assert from "node:assert/strict";
import { readFileSync, readlinkSync, statSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Lab, startLab } from "../harness/lab.ts";
import { particulars } from "../harness/particulars.ts";
import { containerId, images, shell, statusOf } from "../harness/pods.ts";

let lab: Lab;
before(async () => {
  lab = await startLab("containers");
  writeFileSync(
    lab.cluster.layout.resolvConf,
    "nameserver 10.96.0.10\nsearch example.org\noptions timeout:1 attempts:1\n",
  );
});
after(() => lab?.[Symbol.asyncDispose]());

describe("DNS, host names and networks of containers", { concurrency: 4 }, () => {
  test("resolv.conf follows the DNS policy", async () => {
    const show = shell("cat /etc/resolv.conf");
    const dnsConfig = {
      nameservers: ["10.1.2.3"],
      searches: ["corp.test"],
      options: [{ name: "ndots", value: "2" }, { name: "edns0" }],
    };
    const [cluster, node, none, extended, host, hostCluster] = await Promise.all([
      lab.pods.output("dns-cluster", show),
      lab.pods.output("dns-default", show, { dnsPolicy: "Default" }),
      lab.pods.output("dns-none", show, { dnsPolicy: "None", dnsConfig }),
      lab.pods.output("dns-extended", show, { dnsConfig }),
      lab.pods.output("dns-host", show, { hostNetwork: true }),
      lab.pods.output("dns-host-cluster", show, { hostNetwork: true, dnsPolicy: "ClusterFirstWithHostNet" }),
    ]);
    const clusterWide =
      "search default.svc.cluster.local svc.cluster.local cluster.local example.org\nnameserver 10.96.0.10\noptions ndots:5\n";
    const ofNode = "search example.org\nnameserver 10.96.0.10\noptions timeout:1 attempts:1\n";
    assert.deepEqual([cluster, node, host, hostCluster], [clusterWide, ofNode, ofNode, clusterWide]);
    assert.equal(none, "search corp.test\nnameserver 10.1.2.3\noptions ndots:2 edns0\n");
    assert.match(
      extended,
      /^search default\.svc\.cluster\.local svc\.cluster\.local cluster\.local example\.org corp\.test\nnameserver 10\.96\.0\.10\nnameserver 10\.1\.2\.3\noptions (ndots:2 edns0|edns0 ndots:2)\n$/,
    );
  });

  test("sets hostname and /etc/hosts", async () => {
    const { pods } = lab;
    const show = shell("hostname; cat /etc/hosts");
    const managed = [
      "# Kubernetes-managed hosts file.",
      "127.0.0.1\tlocalhost",
      "::1\tlocalhost ip6-localhost ip6-loopback",
      "fe00::0\tip6-localnet",
      "fe00::0\tip6-mcastprefix",
      "fe00::1\tip6-allnodes",
      "fe00::2\tip6-allrouters",
    ];
    const hostAliases = [{ ip: "10.9.8.7", hostnames: ["one", "two.test"] }];
    const [plain, named] = await Promise.all([
      lab.pods.output("hosts", show, { hostAliases }),
      lab.pods.output("hosts-named", show, { hostname: "desk", subdomain: "office" }),
    ]);
    const ip = (name: string) => pods.history(name).at(-1)?.status?.podIP;
    assert.deepEqual(plain.split("\n"), [
      "hosts",
      ...managed,
      `${ip("hosts")}\thosts`,
      "",
      "# Entries added by HostAliases.",
      "10.9.8.7\tone\ttwo.test",
      "",
    ]);
    assert.deepEqual(named.split("\n"), [
      "desk",
      ...managed,
      `${ip("hosts-named")}\tdesk.office.default.svc.cluster.local\tdesk`,
      "",
    ]);
  });

  test("forwards a host port of the node to the pod", async () => {
    const { pods, cluster } = lab;
    await pods.create("reached", {
      containers: [
        { image: images.agnhost, command: ["/agnhost", "netexec"], ports: [{ containerPort: 8080, hostPort: 18080 }] },
      ],
    });
    await pods.ready("reached");
    const said = await cluster.waitFor("an answer at the host port", async () => {
      const { code, stdout } = await cluster.runInside([
        cluster.tools.path("curl"),
        "--silent",
        "--max-time",
        "5",
        `http://${cluster.nodeAddress}:18080/hostname`,
      ]);
      return code === 0 && stdout;
    });
    assert.equal(said, "reached");
  });

  test("lets pods share a host port on different addresses, including the loopback", async () => {
    const { pods, cluster } = lab;
    const port = 18081;
    const serving = (name: string, hostIP: string) =>
      pods.create(name, {
        containers: [
          {
            image: images.agnhost,
            command: ["/agnhost", "netexec"],
            ports: [{ containerPort: 8080, hostPort: port, hostIP }],
          },
        ],
      });
    const rules = async () => {
      const { stdout } = await cluster.runInside(["iptables-save", "-t", "nat"]);
      return stdout.split("\n").filter((line) => line.includes(`--dport ${port} `) || line.includes("graftlet.dev"));
    };
    const answer = async (address: string, from: string) => {
      const { stdout } = await cluster.runInside([
        cluster.tools.path("curl"),
        "--silent",
        "--max-time",
        "5",
        "--interface",
        from,
        `http://${address}:${port}/hostname`,
      ]);
      return stdout;
    };
    // kube-proxy keeps strangers from the loopback: what is not translated on its way is dropped.
    await cluster.waitFor("the proxy's rule", async () => {
      const { stdout } = await cluster.runInside(["iptables", "-S", "KUBE-FIREWALL"]);
      return /-d 127\.0\.0\.0\/8 .*-j DROP/.test(stdout);
    });
    await Promise.all([serving("on-loopback", "127.0.0.1"), serving("on-address", cluster.nodeAddress)]);
    await Promise.all(["on-loopback", "on-address"].map((name) => pods.ready(name)));
    for (const [address, from, name] of [
      ["127.0.0.1", "127.0.0.1", "on-loopback"],
      ["127.0.0.1", cluster.nodeAddress, "on-loopback"],
      [cluster.nodeAddress, cluster.nodeAddress, "on-address"],
    ] as const)
      await cluster.waitFor(
        `${name} to answer at ${address} to ${from}`,
        async () => (await answer(address, from)) === name,
      );
    assert.notDeepEqual(await rules(), []);
    const goes = Promise.all(["on-loopback", "on-address"].map((name) => pods.gone(name)));
    await Promise.all(["on-loopback", "on-address"].map((name) => pods.remove(name, 0)));
    await goes;
    await cluster.waitFor("no rule of theirs to be left", async () => (await rules()).length === 0);
  });

  test("gives a pod its own namespaces unless it requests the host's", async () => {
    const { pods, cluster } = lab;
    const show = shell(
      "for ns in net ipc pid; do readlink /proc/self/ns/$ns; done; hostname; head -n 1 /etc/hosts; ps",
    );
    const [own, host, shared] = await Promise.all([
      lab.pods.output("own-namespaces", show),
      lab.pods.output("host-namespaces", show, { hostNetwork: true, hostIPC: true, hostPID: true }),
      lab.pods.output("shared-processes", show, { shareProcessNamespace: true }),
    ]);
    const machine = [
      `net:[${statSync(cluster.ns).ino}]`,
      readlinkSync("/proc/self/ns/ipc"),
      readlinkSync("/proc/self/ns/pid"),
    ];
    assert.deepEqual(host.split("\n").slice(0, 5), [
      ...machine,
      hostname(),
      "# Kubernetes-managed hosts file (host network).",
    ]);
    assert.match(host, new RegExp(`^ *${lab.agent.pid} `, "m"));
    assert.equal(pods.history("host-namespaces").at(-1)?.status?.podIP, cluster.nodeAddress);
    for (const [index, namespace] of own.split("\n").slice(0, 3).entries()) assert.notEqual(namespace, machine[index]);
    assert.doesNotMatch(own, /\/pause/);
    assert.match(shared, /\/pause/);
    assert.doesNotMatch(shared, new RegExp(`^ *${lab.agent.pid} `, "m"));
  });
});

describe("logs and termination messages of containers", { concurrency: 4 }, () => {
  test("writes logs where log collectors expect them, one file per container run", async () => {
    const { pods, cluster } = lab;
    await pods.create("logging", {
      restartPolicy: "OnFailure",
      volumes: [{ name: "work", emptyDir: {} }],
      containers: [
        shell("echo out; echo err >&2; test -e /work/again && exec sleep infinity; touch /work/again; exit 1", {
          volumeMounts: [{ name: "work", mountPath: "/work" }],
        }),
      ],
    });
    const pod = await pods.until(
      "logging",
      "the second run",
      (one) => statusOf(one)?.restartCount === 1 && statusOf(one)?.state?.running !== undefined,
    );
    const folder = join(cluster.layout.podLogs, `default_logging_${pod.metadata.uid}`, "main");
    const { logLine } = particulars[cluster.provider];
    const wanted = [logLine("stdout", "out"), logLine("stderr", "err")];
    for (const run of ["0.log", "1.log"])
      await cluster.waitFor(`both lines in ${run}`, () => {
        const lines = readFileSync(join(folder, run), "utf8").trimEnd().split("\n");
        return lines.length === 2 && wanted.every((line) => lines.some((one) => line.test(one)));
      });
    // It is made beside what tells that the container runs, not before.
    const link = join(cluster.root, "var/log/containers", `logging_default_main-${containerId(pod)}.log`);
    assert.equal(
      await cluster.waitFor("the link to the second run's log", () => readlinkSync(link)),
      join(folder, "1.log"),
    );
    assert.deepEqual((await pods.log("logging", "previous=true")).split("\n").sort(), ["", "err", "out"]);
  });

  test("takes the termination message from its file, or from the log after a failure", async () => {
    const { pods } = lab;
    const message = async (name: string) =>
      statusOf(await pods.until(name, "to end", (pod) => statusOf(pod)?.state?.terminated !== undefined))?.state
        ?.terminated?.message;
    const end = (name: string, container: object) =>
      pods.create(name, { restartPolicy: "Never", containers: [container] });
    await Promise.all([
      end("last-word", shell("echo -n done > /dev/termination-log")),
      end("own-path", shell("echo -n there > /var/said; exit 1", { terminationMessagePath: "/var/said" })),
      end("from-log", shell("echo it broke; exit 2", { terminationMessagePolicy: "FallbackToLogsOnError" })),
      end("log-unasked", shell("echo it worked", { terminationMessagePolicy: "FallbackToLogsOnError" })),
    ]);
    assert.deepEqual(await Promise.all(["last-word", "own-path", "from-log", "log-unasked"].map(message)), [
      "done",
      "there",
      "it broke\n",
      undefined,
    ]);
  });
});
