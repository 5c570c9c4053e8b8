import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { outside, outsideServer, startDns } from "../harness/dns.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { addresses } from "../harness/namespaces.ts";
import { images, shell, type SpecDraft } from "../harness/pods.ts";

let lab: Lab;
/** The addresses of the pods that answer, by name. */
const ips: Record<string, string> = {};

const service = (name: string, namespace: string, spec: object): object => ({
  apiVersion: "v1",
  kind: "Service",
  metadata: { name, namespace },
  spec: { selector: { app: "web" }, ports: [{ port: 80, targetPort: 8080 }], ...spec },
});

const web: SpecDraft = {
  subdomain: "office",
  containers: [
    {
      image: images.agnhost,
      command: ["/agnhost", "netexec", "--http-port=8080"],
      readinessProbe: { httpGet: { path: "/healthz", port: 8080 }, periodSeconds: 1 },
    },
  ],
};

/** A ready pod is known to the cluster's proxy and its name server only some time after: both are told by watches of their own. */
const untilKnown = `until curl --silent --max-time 2 http://web/hostname && [ "$(dig +search +short office | wc -l)" = 2 ]; do
  sleep 0.2
done`;

before(async () => {
  lab = await startLab("dns");
  const { cluster, pods } = lab;
  writeFileSync(cluster.layout.resolvConf, `nameserver ${outsideServer}\nsearch example.org\n`);
  await Promise.all([startDns(cluster), cluster.mustKubectl(["create", "namespace", "other"])]);
  await cluster.apply([
    service("web", "default", {}),
    service("office", "default", { clusterIP: "None" }),
    service("abroad", "other", { clusterIP: "10.96.7.7" }),
  ]);
  for (const hostname of ["desk", "sofa"])
    await pods.create(hostname, { ...web, hostname }, { labels: { app: "web" } });
  for (const name of ["desk", "sofa"]) ips[name] = (await pods.ready(name)).status?.podIP ?? "";
  await pods.output("settled", shell(untilKnown, { image: images.agnhost }));
});
after(() => lab?.[Symbol.asyncDispose]());

/** What names are for a pod: the addresses in order, or what the resolver says of a name that is not there. dig uses the search
 *  list and ndots as the C library does. */
async function resolved(pod: string, names: readonly string[], spec: SpecDraft = {}): Promise<Record<string, string>> {
  const look = `for name in ${names.join(" ")}; do
    said=$(dig +search +noall +comments +answer -t A "$name")
    found=$(echo "$said" | awk '$4 == "A" { print $5 }' | sort | tr '\\n' ' ')
    echo "$name \${found:-$(echo "$said" | sed -n 's/.*status: \\([A-Z]*\\),.*/\\1/p' | tail -n 1)}"
  done`;
  const text = await lab.pods.output(pod, shell(look, { image: images.agnhost }), spec);
  return Object.fromEntries(
    text
      .trim()
      .split("\n")
      .map((line) => [line.split(" ")[0] ?? "", line.slice(line.indexOf(" ") + 1).trim()]),
  );
}

/** Sorted as text, as the pods' answers are. */
const both = (): string => Object.values(ips).sort().join(" ");

describe("name resolution in a pod", { concurrency: 4 }, () => {
  test("names resolve for Services, other namespaces, headless Services, pods and the outside", async () => {
    const { cluster, pods } = lab;
    const { spec } = (await cluster.get<{ spec: { clusterIP: string } }>("service", "web")) ?? {};
    const names = {
      web: spec?.clusterIP,
      "web.default": spec?.clusterIP,
      "web.default.svc.cluster.local": spec?.clusterIP,
      abroad: "NXDOMAIN",
      "abroad.other": "10.96.7.7",
      "abroad.other.svc": "10.96.7.7",
      office: both(),
      "desk.office": ips["desk"],
      "sofa.office.default.svc.cluster.local": ips["sofa"],
      "shelf.office": "NXDOMAIN",
      "kubernetes.default.svc": addresses.apiServerService,
      kubernetes: addresses.apiServerService,
      [outside.name]: outside.address,
      www: outside.address,
    };
    assert.deepEqual(await resolved("names", Object.keys(names)), names);
    assert.equal((await pods.until("names", "to be there", () => true)).spec.dnsPolicy, "ClusterFirst");
  });

  test("the C library resolves names, and programs connect by name", async () => {
    const get = (host: string) => `curl --silent --max-time 10 http://${host}/hostname; echo`;
    const script = [get("web"), get("desk.office:8080"), get("sofa.office.default.svc.cluster.local.:8080")];
    const said = await lab.pods.output("curls", shell(script.join("\n"), { image: images.agnhost }));
    assert.match(said, /^(desk|sofa)\ndesk\nsofa\s*$/);
  });

  test("names that do not exist get NXDOMAIN at once", async () => {
    // A question that is lost is asked again, after five seconds.
    const ask = "curl --silent http://no-such-name.example.com";
    const script = `before=\${EPOCHREALTIME/./}; ${ask}; echo $? $(((\${EPOCHREALTIME/./} - before) / 1000))`;
    const [code, ms] = (await lab.pods.output("nowhere", shell(script, { image: images.agnhost }))).trim().split(" ");
    assert.equal(code, "6", "curl: could not resolve host");
    assert.ok(Number(ms) < 5000, `after ${ms} ms`);
  });
});

describe("DNS policies of pods", { concurrency: 4 }, () => {
  const names = ["web", "web.default.svc.cluster.local", outside.name];
  const webAddress = async () =>
    (await lab.cluster.get<{ spec: { clusterIP: string } }>("service", "web"))?.spec.clusterIP ?? "";

  test("policy Default uses the node's resolver, which knows no names in the cluster", async () => {
    const found = await resolved("policy-default", names, { dnsPolicy: "Default" });
    assert.deepEqual(Object.values(found), ["NXDOMAIN", "NXDOMAIN", outside.address]);
  });

  test("a host-network pod uses the node's resolver, unless it requests the cluster's", async () => {
    const onHost = await resolved("host", names, { hostNetwork: true });
    assert.deepEqual(Object.values(onHost), ["NXDOMAIN", "NXDOMAIN", outside.address]);
    const asked = await resolved("host-cluster", names, { hostNetwork: true, dnsPolicy: "ClusterFirstWithHostNet" });
    const address = await webAddress();
    assert.deepEqual(Object.values(asked), [address, address, outside.address]);
  });

  test("policy None uses only the pod's own search list and options", async () => {
    const dnsConfig = {
      nameservers: [addresses.dns],
      searches: ["office.default.svc.cluster.local", "default.svc.cluster.local"],
      options: [{ name: "ndots", value: "1" }],
    };
    const found = await resolved("policy-none", ["desk", "web", "abroad.other"], { dnsPolicy: "None", dnsConfig });
    // One dot is as many as ndots: tried as it is first, and it is nowhere; then the list, where it is not either.
    assert.deepEqual(found, { desk: ips["desk"], web: await webAddress(), "abroad.other": "NXDOMAIN" });
  });

  test("the pod's search list and options extend the cluster's", async () => {
    const dnsConfig = { searches: ["other.svc.cluster.local"] };
    const found = await resolved("policy-more", ["abroad", "web"], { dnsConfig });
    assert.deepEqual(found, { abroad: "10.96.7.7", web: await webAddress() });
  });
});
