import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { startGraftlet } from "../harness/agent.ts";
import { certificatesIn, issue, type KeyPair, pairIn } from "../harness/certificates.ts";
import { askKubelet, kubeletStatuses } from "../harness/kubelet-api.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { addresses, networkArgv } from "../harness/namespaces.ts";
import { run } from "../harness/processes.ts";

/** The kubelet API asked directly, on its own port.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/ */
let lab: Lab;
const subresources = ["proxy", "pods", "healthz", "configz", "metrics", "stats", "log", "checkpoint", "statusz"] as const;
const tokens = new Map<string, string>();
before(async () => {
  lab = await startLab("kubelet-auth");
  const { cluster, pods } = lab;
  const accounts = ["nothing", ...subresources];
  await cluster.apply(accounts.flatMap((account) => [
    { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: account, namespace: "default" } },
    ...allowing(`sa-${account}`, account === "nothing" ? ["spec"] : [account], ["get"], { kind: "ServiceAccount", name: account, namespace: "default" }),
  ]));
  await cluster.apply(allowing("cert-reader", ["proxy"], ["get"], { kind: "User", name: "reader", apiGroup: "rbac.authorization.k8s.io" }));
  await cluster.apply(allowing("cert-runners", ["proxy"], ["create"], { kind: "Group", name: "runners", apiGroup: "rbac.authorization.k8s.io" }));
  for (const account of accounts) tokens.set(account, (await cluster.mustKubectl(["create", "token", account])).trim());
  // A refusal is remembered for a while, so nobody may ask before the rights are known.
  for (const subresource of subresources) await hasRight({ user: `system:serviceaccount:default:${subresource}` }, "get", subresource);
  await hasRight({ user: "reader" }, "get", "proxy");
  await hasRight({ user: "somebody", groups: ["runners"] }, "create", "proxy");
  await pods.create("target", { containers: [{ command: ["sh", "-c", "echo hello from the log; exec sleep infinity"] }] });
  await pods.ready("target");
});
after(() => lab?.[Symbol.asyncDispose]());

async function hasRight(who: { user: string; groups?: string[] }, verb: string, subresource: string): Promise<void> {
  const review = { apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview", spec: { ...who, resourceAttributes: { verb, resource: "nodes", subresource, name: lab.cluster.nodeName } } };
  await lab.cluster.waitFor(`${who.user} to have rights`, async () => (await lab.pods.api.create<{ status: { allowed: boolean } }>("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)).status.allowed);
}

/** A ClusterRole on subresources of nodes, and its binding. */
function allowing(name: string, of: readonly string[], verbs: readonly string[], subject: object): object[] {
  return [
    { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", metadata: { name }, rules: [{ apiGroups: [""], resources: of.map((one) => `nodes/${one}`), verbs }] },
    { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRoleBinding", metadata: { name }, roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name }, subjects: [subject] },
  ];
}

const ask = (path: string, asking?: Parameters<typeof askKubelet>[2]): ReturnType<typeof askKubelet> => askKubelet(lab.cluster, path, asking);
const tokenOf = (account: string): { token: string } => ({ token: tokens.get(account) ?? "" });
const admin = (): { certificate: KeyPair } => ({ certificate: certificatesIn(lab.cluster.layout.pki).apiServerKubeletClient });
const log = "/containerLogs/default/target/main";
const webSocket = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: v4.channel.k8s.io"];

/** A client certificate of the cluster's CA, or of another. */
async function certificateOf(commonName: string, { organization, authority, usage = "clientAuth" }: { organization?: string; authority?: KeyPair; usage?: "clientAuth" | "serverAuth" } = {}): Promise<{ certificate: KeyPair }> {
  const { pki } = lab.cluster.layout;
  const certificate = pairIn(pki, `caller-${commonName}-${usage}${authority ? "-other" : ""}`);
  await issue(certificate, authority ?? certificatesIn(pki).ca, { commonName, usage, ...(organization && { organization }) });
  return { certificate };
}

describe("authentication", { concurrency: 4 }, () => {
  test("nobody gets in without credentials", async () => {
    for (const path of ["/pods", "/healthz", "/no/such/path", log]) assert.deepEqual(await ask(path), { status: 401, body: "Unauthorized" });
    assert.deepEqual(await ask("/exec/default/target/main?command=id&output=1", { method: "POST" }), { status: 401, body: "Unauthorized" });
    assert.deepEqual(await ask("/exec/default/target/main?command=id&output=1", { headers: webSocket }), { status: 401, body: "Unauthorized" });
  });

  test("a client certificate counts when the cluster's CA issued it for clients", async () => {
    const { frontProxyCa } = certificatesIn(lab.cluster.layout.pki);
    assert.equal((await ask("/healthz", await certificateOf("reader"))).status, 200);
    assert.deepEqual(await ask("/healthz", await certificateOf("reader", { authority: frontProxyCa })), { status: 401, body: "Unauthorized" });
    assert.deepEqual(await ask("/healthz", await certificateOf("reader", { usage: "serverAuth" })), { status: 401, body: "Unauthorized" });
  });

  test("a token counts when the API server knows it, for its own audience", async () => {
    assert.deepEqual(await ask("/healthz", tokenOf("healthz")), { status: 200, body: "ok" });
    assert.deepEqual(await ask("/healthz", { token: "made.up.token" }), { status: 401, body: "Unauthorized" });
    const elsewhere = (await lab.cluster.mustKubectl(["create", "token", "healthz", "--audience=elsewhere"])).trim();
    assert.deepEqual(await ask("/healthz", { token: elsewhere }), { status: 401, body: "Unauthorized" });
  });

  test("the token of an account that is deleted stops counting before long", async () => {
    const { cluster } = lab;
    await cluster.mustKubectl(["create", "serviceaccount", "leaving"]);
    const token = (await cluster.mustKubectl(["create", "token", "leaving"])).trim();
    await cluster.mustKubectl(["delete", "serviceaccount", "leaving"]);
    await cluster.waitFor("the API server to refuse the token", async () => (await cluster.kubectl(["get", "--raw=/api", `--token=${token}`, "--kubeconfig=/dev/null", `--server=https://${addresses.node}:${addresses.apiServerPort}`, "--insecure-skip-tls-verify"])).code !== 0);
    assert.deepEqual(await ask("/healthz", { token }), { status: 401, body: "Unauthorized" });
  });
});

describe("authorization", { concurrency: 4 }, () => {
  test("a caller without rights is told what was missing", async () => {
    assert.deepEqual(await ask("/pods", await certificateOf("stranger")), { status: 403, body: "Forbidden (user=stranger, verb=get, resource=nodes, subresource(s)=[pods proxy])\n" });
    const user = "system:serviceaccount:default:nothing";
    assert.deepEqual(await ask("/metrics", tokenOf("nothing")), { status: 403, body: `Forbidden (user=${user}, verb=get, resource=nodes, subresource(s)=[metrics])\n` });
    assert.deepEqual(await ask(log, tokenOf("nothing")), { status: 403, body: `Forbidden (user=${user}, verb=get, resource=nodes, subresource(s)=[proxy])\n` });
    assert.deepEqual(await ask("/exec/default/target/main?command=id&output=1", { ...tokenOf("proxy"), method: "POST" }), { status: 403, body: "Forbidden (user=system:serviceaccount:default:proxy, verb=create, resource=nodes, subresource(s)=[proxy])\n" });
    assert.deepEqual(await ask("/no/such/path", { ...tokenOf("proxy"), method: "DELETE" }), { status: 403, body: "Forbidden (user=system:serviceaccount:default:proxy, verb=delete, resource=nodes, subresource(s)=[proxy])\n" });
    assert.equal((await ask("/pods", { ...tokenOf("proxy"), method: "HEAD", headers: ["Connection: close"] })).status, 403);
  });

  /** Who may ask for what: the subresources of nodes that open a path. */
  const doors: Readonly<Record<string, readonly (typeof subresources)[number][]>> = {
    "/healthz": ["healthz", "proxy"],
    "/healthz/ping": ["healthz", "proxy"],
    "/healthz/log": ["healthz", "proxy"],
    "/healthz/syncloop": ["healthz", "proxy"],
    "/pods": ["pods", "proxy"],
    "/pods/": ["pods", "proxy"],
    "/runningpods/": ["pods", "proxy"],
    "/configz": ["configz", "proxy"],
    "/flagz": ["configz"],
    "/statusz": ["statusz"],
    "/stats/summary": ["stats"],
    "/metrics": ["metrics"],
    "/metrics/cadvisor": ["metrics"],
    "/metrics/resource": ["metrics"],
    "/metrics/probes": ["metrics"],
    "/logs/": ["log"],
    "/logs/syslog": ["log"],
    "/checkpoint/default/target/main": ["checkpoint"],
    [log]: ["proxy"],
    "/exec/default/target/main": ["proxy"],
    "/attach/default/target/main": ["proxy"],
    "/portForward/default/target": ["proxy"],
    "/run/default/target/main": ["proxy"],
    "/debug/pprof/": ["proxy"],
    "/no/such/path": ["proxy"],
    "/": ["proxy"],
  };
  for (const account of ["nothing", ...subresources]) {
    test(`get on nodes/${account} opens its paths and no others`, async () => {
      const statuses = await kubeletStatuses(lab.cluster, Object.keys(doors), tokenOf(account));
      const open = Object.entries(statuses).filter(([, status]) => status !== 403).map(([path]) => path);
      assert.deepEqual(open, Object.keys(doors).filter((path) => doors[path]?.some((one) => one === account)), JSON.stringify(statuses));
      assert.ok(!Object.values(statuses).some((status) => status === 401 || status >= 501 || status === 0), JSON.stringify(statuses));
    });
  }

  test("the verb is the method's: get on proxy reads, create on proxy runs, a WebSocket gets", async () => {
    const reader = await certificateOf("reader");
    const runner = await certificateOf("runner", { organization: "runners" });
    assert.deepEqual(await ask(log, reader), { status: 200, body: "hello from the log\n" });
    assert.equal((await ask(log, runner)).status, 403);
    assert.deepEqual(await ask("/run/default/target/main?cmd=echo%20ran", { ...runner, method: "POST" }), { status: 200, body: "ran\n" });
    assert.equal((await ask("/run/default/target/main?cmd=echo%20ran", { ...reader, method: "POST" })).status, 403);
    const exec = "/exec/default/target/main?command=true&output=1";
    assert.equal((await ask(exec, { ...reader, headers: webSocket })).status, 101);
    assert.deepEqual(await ask(exec, { ...await certificateOf("stranger"), headers: webSocket }), { status: 403, body: "Forbidden (user=stranger, verb=get, resource=nodes, subresource(s)=[proxy])\n" });
    assert.equal((await ask(exec, { ...tokenOf("pods"), headers: webSocket })).status, 403);
  });
});

describe("what is served", { concurrency: 4 }, () => {
  test("health, pods, running pods and the configuration", async () => {
    for (const path of ["/healthz", "/healthz/ping", "/healthz/log", "/healthz/syncloop"]) assert.deepEqual(await ask(path, admin()), { status: 200, body: "ok" });
    const list = async (path: string): Promise<PodList> => JSON.parse((await ask(path, admin())).body) as PodList;
    const pods = await list("/pods");
    assert.deepEqual([pods.kind, pods.apiVersion], ["PodList", "v1"]);
    const [target] = pods.items;
    assert.deepEqual([pods.items.length, target?.metadata.name, target?.spec.nodeName, target?.status.phase], [1, "target", lab.cluster.nodeName, "Running"]);
    assert.deepEqual((await list("/pods/")).items.length, 1);
    const running = await list("/runningpods/");
    assert.deepEqual(running.items.map(({ metadata, spec }) => [metadata.namespace, metadata.name, metadata.uid, spec.containers.map(({ name }) => name)]), [["default", "target", target?.metadata.uid, ["main"]]]);
    const { kubeletconfig } = JSON.parse((await ask("/configz", admin())).body) as { kubeletconfig: Record<string, unknown> };
    assert.deepEqual([kubeletconfig["podLogsDir"], kubeletconfig["port"], kubeletconfig["cgroupRoot"]], [lab.cluster.layout.podLogs, 10250, lab.cluster.layout.cgroup]);
  });

  test("refusals in the kubelet's words", async () => {
    const { status } = await ask("/no/such/path", admin());
    assert.equal(status, 404);
    assert.deepEqual(await ask("/containerLogs/default/absent/main", admin()), { status: 404, body: 'pod "absent" does not exist' });
    assert.deepEqual(await ask("/containerLogs/default/target/absent", admin()), { status: 404, body: 'container "absent" not found in pod "target"' });
    assert.deepEqual(await ask(`${log}?tailLines=many`, admin()), { status: 400, body: '{"message": "Unable to decode query."}' });
    assert.deepEqual(await ask(`${log}?limitBytes=0`, admin()), { status: 422, body: '{"message": "Invalid request."}' });
    assert.deepEqual(await ask("/exec/default/target/main?command=id", { ...admin(), method: "POST" }), { status: 400, body: "you must specify at least 1 of stdin, stdout, stderr" });
    assert.deepEqual(await ask("/exec/default/absent/main?command=id&output=1", { ...admin(), method: "POST" }), { status: 404, body: "pod does not exist" });
    assert.deepEqual(await ask("/exec/default/target/absent?command=id&output=1", { ...admin(), method: "POST" }), { status: 500, body: 'container not found ("absent")' });
  });

  test("no path leads out of what it names", async () => {
    const outside = ["/containerLogs/default/target/..%2f..%2f..%2fetc", "/containerLogs/../../etc/passwd", "/containerLogs/default/%2e%2e/main", "/logs/../../etc/passwd", "/logs/..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/../etc/passwd", "/pods%00", "/%zz"];
    for (const path of outside) {
      const { status, body } = await ask(path, admin());
      assert.ok(status === 404 || status === 400, `${path}: ${status}`);
      assert.doesNotMatch(body, /root:/);
    }
  });

  test("no spelling of a path opens more than its area", async () => {
    for (const path of ["/healthz/../pods", "/healthz/..%2fpods", "/healthz/%2e%2e/pods", "/healthz//../pods", "/healthz/./../configz", "/healthz%2f..%2fpods", "//pods", "/healthz/../containerLogs/default/target/main"]) {
      const { status, body } = await ask(path, tokenOf("healthz"));
      assert.ok(status === 404 || status === 403 || status === 400, `${path}: ${status}`);
      assert.doesNotMatch(body, /PodList|kubeletconfig|hello from/);
    }
  });

  test("10248 says ok on the loopback, and is nowhere else", async () => {
    const { cluster } = lab;
    const curl = (url: string): ReturnType<typeof run> => run(networkArgv(cluster.layout, [cluster.tools.path("curl"), "--silent", "--max-time", "10", url]));
    assert.deepEqual(await curl("http://127.0.0.1:10248/healthz"), { code: 0, stdout: "ok", stderr: "" });
    assert.equal((await curl("http://127.0.0.1:10248/pods")).stdout, "404 page not found\n");
    assert.equal((await curl(`http://${addresses.node}:10248/healthz`)).code, 7);
    assert.equal((await curl(`http://${addresses.node}:10255/pods`)).code, 7);
    assert.equal((await curl("http://127.0.0.1:10255/pods")).code, 7);
  });
});

interface PodList {
  readonly kind: string;
  readonly apiVersion: string;
  readonly items: readonly { metadata: { name: string; namespace: string; uid: string }; spec: { nodeName?: string; containers: { name: string }[] }; status: { phase?: string } }[];
}

test("configured otherwise: anonymous callers by RBAC, no debugging handlers", async () => {
  const { cluster, agent } = lab;
  assert.ok(await agent.stop());
  const authentication = { anonymous: { enabled: true }, webhook: { enabled: true }, x509: { clientCAFile: join(cluster.layout.pki, "ca.crt") } };
  await using _agent = await startGraftlet(cluster, { config: { authentication, enableDebuggingHandlers: false } });
  await cluster.waitFor("the kubelet API of the second agent", async () => (await ask("/healthz", admin())).status === 200);
  assert.deepEqual(await ask("/pods"), { status: 403, body: "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])\n" });
  assert.deepEqual(await ask("/pods", { token: "made.up.token" }), { status: 401, body: "Unauthorized" });
  for (const path of [log, "/exec/default/target/main?command=id&output=1", "/runningpods/", "/portForward/default/target"]) assert.deepEqual(await ask(path, admin()), { status: 405, body: "Debug endpoints are disabled.\n" });
  assert.equal((await ask("/pods", admin())).status, 200);
  const { code, stderr } = await cluster.kubectl(["logs", "target"]);
  assert.equal(code, 1);
  assert.match(stderr, /MethodNotAllowed/);
});
