import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { V1EndpointSlice, V1ObjectMeta } from "@kubernetes/client-node";
import { nodeReady } from "../harness/agent.ts";
import { release } from "../harness/helm-lab.ts";
import { addresses } from "../harness/namespaces.ts";
import { releaseOf } from "./helm/release.ts";
import { addressOf, server, serverPort, service, tunneled } from "./helm/tunnel.ts";
import { arrivesWhole, firewallMessage, get, startTunnelLab, type TunnelLab } from "./helm/tunnel-lab.ts";
import { placed } from "./helm/workload.ts";
import { kubectlWithToken } from "../harness/pod-token.ts";

type Slice = Pick<V1EndpointSlice, "metadata" | "endpoints" | "ports"> & { metadata: V1ObjectMeta };

describe("network: tunneled: pods of an isolated machine reach the cluster over the link", { timeout: 900_000 }, () => {
  let lab: TunnelLab;
  const inside = (pod: string, script: string) => lab.inside(pod, script);
  const said = (pod: string, script: string) => lab.said(pod, script);
  /** graftlet's own slices of a Service, or of all. */
  const slicesOf = async (name?: string) => {
    const labels = [
      "endpointslice.kubernetes.io/managed-by=graftlet.dev",
      ...(name ? [`kubernetes.io/service-name=${name}`] : []),
    ];
    const listed = await lab.cluster.mustKubectl(["get", "endpointslices", "-A", `-l${labels.join(",")}`, "-ojson"]);
    return (JSON.parse(listed) as { items: Slice[] }).items;
  };
  const rules = () => lab.edge.mustInside(["nft", "list", "ruleset"]);

  before(async () => {
    lab = await startTunnelLab("tunnel");
  });
  after(() => lab?.[Symbol.asyncDispose]());

  test("an unmodified pod resolves names, and reaches Services and the API server", async () => {
    const { cluster } = lab;
    const web = await addressOf(cluster, "web");
    assert.equal(await said("far", "dig +search +short web"), web);
    assert.equal(await said("far", "dig +search +short +tcp web.default"), web);
    assert.equal(await said("far", get("http://web/hostname")), "web");
    assert.match(await said("far", "cat /etc/resolv.conf"), new RegExp(`nameserver ${addresses.dns}`));
    assert.match(await said("far", get("--insecure https://kubernetes.default/version")), /"major": "1"/);
    const { status } = (await cluster.get<{ status: { conditions: { type: string }[] } }>("node", release.node)) ?? {};
    assert.ok(!status?.conditions.some(({ type }) => type === "PodNetworkIsolated"));
  });

  test("an in-cluster client works unchanged", async () => {
    const token = "/var/run/secrets/kubernetes.io/serviceaccount";
    const ask = get(
      `--cacert ${token}/ca.crt --header "Authorization: Bearer $(cat ${token}/token)" https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/default`,
    );
    assert.match(await said("far", ask), /system:serviceaccount:default:default/);
  });

  test("carries UDP in both directions", async () => {
    const ask = "exec 3<>/dev/udp/web/81; echo hostname >&3; timeout 5 head -c 3 <&3";
    assert.equal(await said("far", `bash -c '${ask}'`), "web");
  });

  test("reaches the pods of a headless Service by name", async () => {
    const { cluster } = lab;
    const ports = [{ port: serverPort }];
    await cluster.apply([
      service("office", { clusterIP: "None", selector: { app: "desk" }, ports }),
      server("desk", { hostname: "desk", subdomain: "office" }),
    ]);
    await cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/desk", "--timeout=30s"]);
    const ask = async () => (await inside("far", get(`http://desk.office:${serverPort}/hostname`))).text;
    await cluster.waitFor("the pod to answer by its name", async () => (await ask()) === "desk", 15_000);
  });

  test("follows an ExternalName Service", async () => {
    const externalName = "web.default.svc.cluster.local";
    await lab.cluster.apply([service("alias", { type: "ExternalName", externalName, selector: undefined })]);
    const ask = async () => (await inside("far", get("http://alias/hostname"))).text;
    await lab.cluster.waitFor("the Service to answer", async () => (await ask()) === "web", 15_000);
  });

  test("transfers 64 MiB completely", async () => {
    await arrivesWhole(lab, { from: "far", to: "web", bytes: 2 ** 26, within: 10 });
  });

  test("a Service with pods on the machine answers in the cluster, next to pods of the cluster", async () => {
    const { cluster } = lab;
    await cluster.apply([
      service("there", { selector: { app: "far" } }),
      service("both", { selector: { part: "both" } }),
    ]);
    await cluster.mustKubectl(["label", "pod", "web", "far", "part=both"]);
    const answers = async (from: string, name: string) => (await inside(from, get(`http://${name}/hostname`))).text;
    await cluster.waitFor(
      "the pod on the machine to answer",
      async () => (await answers("web", "there")) === "far",
      10_000,
    );
    await cluster.waitFor("both to be endpoints", async () => (await slicesOf("both")).length === 1, 10_000);
    const some = await said(
      "web",
      `for i in $(seq 40); do ${get("http://both/hostname")}; echo; done | sort -u | xargs`,
    );
    assert.equal(some, "far web");
    const { endpoints, ports } = (await slicesOf("there"))[0] ?? {};
    const dialled = `http://${endpoints?.[0]?.addresses[0]}:${ports?.[0]?.port}/hostname`;
    assert.equal(
      await said("web", get(dialled)),
      "far",
      "as an Ingress and Prometheus dial: an endpoint's own address",
    );
    assert.equal(await answers("other", "there"), "far", "from a pod of the same machine");
    assert.equal(await answers("far", "there"), "far", "from the pod itself");
    const told = [
      "get",
      "events",
      "--field-selector=reason=ServicesNotForwarded",
      "--output=jsonpath={.items[*].message}",
    ];
    const event = async () => /through default\/both: its port 81 is UDP/.test(await cluster.mustKubectl(told));
    await cluster.waitFor("the event that datagrams are not carried", event, 10_000);
    await cluster.mustKubectl(["label", "pod", "far", "part-"]);
    await cluster.waitFor("one to be left", async () => (await slicesOf("both")).length === 0, 10_000);
    const twenty = `for i in $(seq 20); do ${get("http://both/hostname")}; echo; done | sort -u | xargs`;
    await cluster.waitFor("the other alone to answer", async () => (await said("web", twenty)) === "web", 10_000);
  });

  test("session affinity keeps a client at its pod, both from the machine and from the cluster", async () => {
    const { cluster } = lab;
    const named = { selector: { part: "kept" }, sessionAffinity: "ClientIP" };
    await cluster.mustKubectl(["label", "pod", "web", "far", "part=kept", "--overwrite"]);
    await cluster.apply([service("kept", named)]);
    await cluster.waitFor("both to be endpoints", async () => (await slicesOf("kept")).length === 1, 10_000);
    const some = `for i in $(seq 20); do ${get("http://kept/hostname")}; echo; done | sort -u | xargs`;
    for (const from of ["far", "web"])
      await cluster.waitFor(`${from} to be led to one`, async () => /^(far|web)$/.test(await said(from, some)), 20_000);
    const [out, again] = [await said("far", some), await said("other", some)];
    assert.equal(out, again, "the cluster takes the node's pods for one");
    await cluster.mustKubectl(["label", "pod", "web", "far", "part-"]);
  });

  test("transfers 64 MiB to the machine completely", async () => {
    await arrivesWhole(lab, { from: "web", to: "there", bytes: 2 ** 26, within: 10 });
  });

  test("endpoints omit pods that are terminating or not ready", async () => {
    const { cluster } = lab;
    await cluster.apply([service("brief", { selector: { app: "brief" } }), server("brief", placed)]);
    const ready = async () =>
      (await slicesOf("brief")).some(({ endpoints }) => endpoints?.some(({ conditions }) => conditions?.ready));
    await cluster.waitFor("the pod to be an endpoint", ready, 30_000);
    await cluster.mustKubectl(["delete", "pod", "brief", "--grace-period=1"]);
    await cluster.waitFor("the endpoint to be gone", async () => (await slicesOf("brief")).length === 0, 10_000);
    const { code } = await inside("web", get("http://brief"));
    assert.ok([7, 28].includes(code), String(code));
  });

  test("the release's account may publish only its own Pod, and only for its own nodes", async () => {
    const { cluster } = lab;
    const [slice] = await slicesOf("there");
    assert.ok(slice);
    const { namespace } = release;
    const account = `${release.name}-graftlet`;
    const pods = ["get", "pods", `-n=${namespace}`, "-lapp.kubernetes.io/component=kubelet", "-oname"];
    const pod = (await cluster.mustKubectl(pods)).trim().replace("pod/", "");
    const asPod = await kubectlWithToken(cluster, { namespace, account, pod });
    const tries = async (change: (slice: Slice) => void) => {
      const tried = structuredClone(slice);
      tried.metadata = { name: "tried", namespace: "default", labels: { ...slice.metadata.labels } };
      change(tried);
      const stdin = JSON.stringify({ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", ...tried });
      const { code, stderr } = await asPod(["create", "--dry-run=server", "-f", "-"], { stdin });
      return code === 0 ? "" : stderr;
    };
    assert.equal(await tries(() => {}), "");
    assert.match(
      await tries((one) => void (one.endpoints = [{ addresses: ["192.0.2.1"] }])),
      /the addresses of its own Pod/,
    );
    assert.match(
      await tries(({ endpoints = [] }) => endpoints.forEach((each) => void (each.nodeName = "other"))),
      /the addresses of its own Pod/,
    );
    assert.match(
      await tries(({ metadata }) => void delete metadata.labels?.["endpointslice.kubernetes.io/managed-by"]),
      /of its own tunneled nodes/,
    );
    assert.match(
      await tries(({ metadata: { labels } }) => labels && void (labels["graftlet.dev/node"] = "first")),
      /of its own tunneled nodes/,
    );
    assert.match(
      await tries(({ metadata: { labels } }) => labels && void (labels["kubernetes.io/service-name"] = "kubernetes")),
      /not publish endpoints of this Service/,
    );
  });

  test("serves two hundred connections at once, and the node stays responsive", async () => {
    const one = 'curl --silent --show-error --max-time 30 "http://web/shell?cmd=sleep+3%26%26echo+done" 2>&1';
    // What went wrong instead is counted too.
    const ask = `seq 200 | xargs -P 200 -I{} ${one} | grep -oE "done|curl: .*|error.*" | sort | uniq -c`;
    const asked = said("far", ask);
    const started = Date.now();
    assert.equal(await said("other", "echo here"), "here");
    assert.ok(Date.now() - started < 3_000);
    assert.match(await asked, /^ *200 done$/);
  });

  test("refuses a port without a Service, and a Service without pods, at once", async () => {
    await lab.cluster.apply([service("nobody", { selector: { app: "nobody" } })]);
    await lab.cluster.waitFor("the Service to be known there", async () =>
      (await rules()).includes((await addressOf(lab.cluster, "nobody")) ?? "?"),
    );
    for (const url of ["http://web:82", "http://nobody"]) {
      const started = Date.now();
      const { code } = await inside("far", get(url));
      assert.ok([7, 52, 56].includes(code), `${url}: ${code}`);
      assert.ok(Date.now() - started < 5_000);
    }
  });

  test("follows at once when a Service is created, changed or deleted", async () => {
    const { cluster } = lab;
    await cluster.apply([service("late", { clusterIP: "10.96.9.9" })]);
    const answers = async () => (await inside("far", `${get("http://10.96.9.9/hostname")} --max-time 1`)).code === 0;
    const until = (what: string, good: boolean) => cluster.waitFor(what, async () => (await answers()) === good, 4_000);
    await until("the new Service to answer", true);
    await cluster.mustKubectl(["delete", "service", "late"]);
    await until("the Service to be gone", false);
  });

  test("admits only the node's pods on the machine", async () => {
    const { cluster, edge } = lab;
    const web = await addressOf(cluster, "web");
    const port = /redirect to :(\d+)/.exec(await rules())?.[1];
    const answer = async (user: number, url: string) => {
      const script = `curl --silent --max-time 3 ${url} >/dev/null; echo $?`;
      const asUser = ["setpriv", `--reuid=${user}`, `--regid=${user}`, "--clear-groups", "sh", "-c", script];
      return (await edge.mustInside(asUser)).trim();
    };
    for (const user of [0, 65_534]) {
      assert.notEqual(await answer(user, `http://${web}/hostname`), "0", `a process of the machine's user ${user}`);
      assert.notEqual(await answer(user, `http://127.0.0.1:${port}/hostname`), "0", `straight to the relay, ${user}`);
    }
  });

  test("restores flushed rules within ten seconds, and reports a packet filter that blocks pods until its command is run", async () => {
    const { cluster, edge } = lab;
    await edge.mustInside(["sh", "-ec", "nft flush ruleset; iptables -A INPUT ! -i lo -p udp -j DROP"]);
    await cluster.waitFor("the rules to be back", async () => (await rules()).includes("redirect to"), 10_000);
    const message = await firewallMessage(lab, "the condition to report it", (text) => text !== undefined);
    const [, command = ""] =
      /^a packet filter .* on the target blocks UDP from pods .* On the target, run: (.+) \(and/.exec(message ?? "") ??
      [];
    await edge.mustInside(["sh", "-ec", command]);
    await firewallMessage(lab, "the condition to be gone", (text) => text === undefined);
    assert.equal(await said("far", get("http://web/hostname")), "web");
  });

  test("a broken link ends connections; everything works within five seconds once the link is back", async () => {
    const { cluster, edge } = lab;
    await edge.unplug();
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    assert.match(await rules(), /redirect to/);
    await edge.plug();
    await nodeReady(cluster, release.node);
    await cluster.waitFor(
      "Services to answer again",
      async () => (await inside("far", get("http://web/hostname"))).text === "web",
      10_000,
    );
  });

  test("pods keep the tunnel while graftlet is replaced under load, and no other Pod answers", async () => {
    const { cluster } = lab;
    const [heard, over] = [new Set<string>(), new AbortController()];
    const asking = ["far there", "far web", "web there"].map(async (way) => {
      const [from = "", to] = way.split(" ");
      const script = `for i in 1 2 3 4 5; do ${get(`http://${to}/hostname`, 2)}; echo; done | sort -u | xargs`;
      while (!over.signal.aborted) heard.add(`${to}: ${(await inside(from, script)).text}`);
    });
    await lab.mustHelm(["upgrade", ...lab.told, ...tunneled, "--set=nodes[0].kubeletConfiguration.maxPods=50"]);
    await cluster.waitFor(
      "the new graftlet",
      async () =>
        (await cluster.get<{ status: { capacity: { pods: string } } }>("node", release.node))?.status.capacity.pods ===
        "50",
    );
    await cluster.waitFor(
      "Services to answer",
      async () => (await inside("other", get("http://web/hostname"))).text === "web",
      15_000,
    );
    await cluster.waitFor(
      "pods of the machine to answer",
      async () => (await inside("web", get("http://there/hostname"))).text === "far",
      15_000,
    );
    over.abort();
    await Promise.all(asking);
    for (const none of ["there: ", "web: "]) heard.delete(none);
    assert.deepEqual([...heard].toSorted(), ["there: far", "web: web"]);
  });

  test("with serviceNamespaces, pods reach the API server and DNS, but no Services in other namespaces", async () => {
    const { cluster } = lab;
    await lab.mustHelm(["upgrade", ...lab.told, ...tunneled, "--set=nodes[0].ssh.serviceNamespaces={elsewhere}"]);
    await cluster.waitFor(
      "Services of the namespace default to refuse",
      async () => (await inside("far", get("http://web/hostname", 3))).code === 7,
      60_000,
    );
    const version = await inside("far", get("--insecure https://kubernetes.default/version"));
    assert.match(version.text, /"major": "1"/);
  });

  test("the tunnel leaves nothing on the machine once it is switched off, and the condition reports it", async () => {
    const { cluster } = lab;
    assert.match(await rules(), /table ip graftlet-/);
    await lab.mustHelm(["upgrade", ...lab.told, "--set=nodes[0].kubeletConfiguration.maxPods=51"]);
    await cluster.waitFor("endpoints to be gone", async () => (await slicesOf()).length === 0, 30_000);
    await cluster.waitFor("the rules to be gone", async () => !(await rules()).includes("table ip graftlet-"), 60_000);
    const conditions = async () =>
      (await cluster.get<{ status: { conditions: { type: string }[] } }>("node", release.node))?.status.conditions;
    await cluster.waitFor("the condition", async () =>
      (await conditions())?.some(({ type }) => type === "PodNetworkIsolated"),
    );
  });

  test("uninstall with drain removes the tunnel completely, even after graftlet was killed", async () => {
    await lab.mustHelm(["upgrade", ...lab.told, ...tunneled, "--set=onUninstall=drain"]);
    await lab.cluster.waitFor("the rules", async () => (await rules()).includes("redirect to"), 60_000);
    await releaseOf(lab).kill();
    assert.match(await rules(), /redirect to/);
    await lab.mustHelm(["uninstall", release.name, `--namespace=${release.namespace}`, "--timeout=5m"]);
    assert.doesNotMatch(await rules(), /table ip graftlet-/);
    assert.equal((await lab.edge.mustInside(["sh", "-c", "ls /run | grep ^graftlet- || true"])).trim(), "");
  });
});
