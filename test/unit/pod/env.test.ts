import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ConfigMap, Container, Pod, Secret, Service } from "../../../src/objects.ts";
import { parseEnvFile } from "../../../src/pod/env-file.ts";
import { buildEnvironment, environmentReferences } from "../../../src/pod/env.ts";
import { withKubernetesService } from "../../../src/pod/service-env.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const meta = (name: string, namespace = "default") => ({ name, namespace, uid: `uid-of-${name}` });
const settings: ConfigMap = { metadata: meta("settings"), data: { MODE: "fast", LEVEL: "3" } };
const login: Secret = {
  metadata: meta("login"),
  data: { USER: Buffer.from("bob").toString("base64"), PASSWORD: Buffer.from("sésame").toString("base64") },
};

function service(
  name: string,
  namespace: string,
  clusterIP: string,
  ports: { port: number; name?: string; protocol?: string }[],
): Service {
  return { metadata: meta(name, namespace), spec: { clusterIP, ports } };
}

function build(
  container: Partial<Container>,
  more: {
    pod?: Pod;
    services?: readonly Service[];
    files?: Record<string, string | Error>;
    secrets?: ReadonlyMap<string, Secret>;
  } = {},
): Record<string, string> {
  const whole = aContainer("c", container);
  const env = buildEnvironment({
    pod: more.pod ?? aPod({ containers: [whole] }, { labels: { app: "web" } }),
    container: whole,
    configMaps: new Map([["settings", settings]]),
    secrets: more.secrets ?? new Map([["login", login]]),
    files: new Map(
      Object.entries(more.files ?? {}).map(([name, file]) => [
        name,
        file instanceof Error ? file : parseEnvFile(Buffer.from(file)),
      ]),
    ),
    services: more.services ?? [],
    allocatable: { cpu: "4" },
    hostIPs: ["192.0.2.1"],
    podIPs: ["10.0.0.2"],
  });
  return Object.fromEntries(env);
}

describe("a container's environment", () => {
  it("rejects bytes that an environment cannot hold, and names their key", () => {
    const bytes = (...values: number[]) => Buffer.from(values).toString("base64");
    const secrets = new Map<string, Secret>([
      ["login", { ...login, data: { USER: bytes(0x61, 0xff), NUL: bytes(0x61, 0, 0x62) } }],
    ]);
    const from = (key: string) => ({ env: [{ name: "V", valueFrom: { secretKeyRef: { name: "login", key } } }] });
    const notText = (variable: string) =>
      `environment variable "${variable}": key USER in Secret default/login is not UTF-8, which a container's environment cannot hold: mount the Secret as a volume`;
    assert.throws(() => build(from("USER"), { secrets }), { message: notText("V") });
    assert.throws(() => build({ envFrom: [{ prefix: "P_", secretRef: { name: "login" } }] }, { secrets }), {
      message: `environment variable "P_NUL" has a NUL byte, which a container's environment cannot hold`,
    });
    secrets.set("login", { ...login, data: { USER: bytes(0x61, 0xff) } });
    assert.throws(() => build({ envFrom: [{ prefix: "P_", secretRef: { name: "login" } }] }, { secrets }), {
      message: notText("P_USER"),
    });
    assert.deepEqual(build({ env: [{ name: "V", value: "é\ufffd" }] }), { V: "é\ufffd" });
  });
  it("reads variables from files in volumes; missing or empty ones may be optional", () => {
    const from = (key: string, path = "env", optional = false) => ({
      env: [{ name: "V", valueFrom: { fileKeyRef: { key, path, volumeName: "work", optional } } }],
    });
    const files = {
      "work/env": "A='one'\nE=''",
      "work/bad": "nonsense",
      "work/none": new Error("couldn't parse env file"),
    };
    assert.equal(build(from("A"), { files })["V"], "one");
    assert.equal("V" in build(from("B", "env", true), { files }), false);
    assert.equal("V" in build(from("E", "env", true), { files }), false);
    assert.throws(() => build(from("B"), { files }), /^Error: environment variable key "B" not found in file "env"$/);
    for (const path of ["bad", "none"])
      assert.throws(() => build(from("A", path, true), { files }), /^Error: couldn't parse env file$/);
  });
  it("applies envFrom first, with prefixes, later sources over earlier ones, and env over all of them", () => {
    const env = build({
      envFrom: [{ configMapRef: { name: "settings" } }, { prefix: "DB_", secretRef: { name: "login" } }],
      env: [{ name: "LEVEL", value: "$(LEVEL)1" }],
    });
    assert.deepEqual(env, { LEVEL: "31", MODE: "fast", DB_PASSWORD: "sésame", DB_USER: "bob" });
  });
  it("resolves fields, resources and keys", () => {
    const env = build({
      env: [
        { name: "NAME", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } },
        { name: "APP", valueFrom: { fieldRef: { fieldPath: "metadata.labels['app']" } } },
        { name: "IP", valueFrom: { fieldRef: { fieldPath: "status.podIP" } } },
        { name: "CPUS", valueFrom: { resourceFieldRef: { resource: "limits.cpu" } } },
        { name: "MODE", valueFrom: { configMapKeyRef: { name: "settings", key: "MODE" } } },
        { name: "USER", valueFrom: { secretKeyRef: { name: "login", key: "USER" } } },
        { name: "BOTH", value: "$(MODE)-$(USER)-$(LATER)" },
        { name: "LATER", value: "x" },
        { name: "EMPTY" },
      ],
    });
    assert.deepEqual(env, {
      NAME: "p",
      APP: "web",
      IP: "10.0.0.2",
      CPUS: "4",
      MODE: "fast",
      USER: "bob",
      BOTH: "fast-bob-$(LATER)",
      LATER: "x",
      EMPTY: "",
    });
  });
  it("omits optional missing values", () => {
    const env = build({
      envFrom: [{ configMapRef: { name: "none", optional: true } }, { secretRef: { name: "none", optional: true } }],
      env: [
        { name: "A", valueFrom: { configMapKeyRef: { name: "none", key: "k", optional: true } } },
        { name: "B", valueFrom: { secretKeyRef: { name: "login", key: "none", optional: true } } },
        { name: "C", value: "$(A)" },
      ],
    });
    assert.deepEqual(env, { C: "$(A)" });
  });
  it("enforces Linux's limits: 128 KiB per value, 2 MiB in total", () => {
    const doubled = (levels: number) =>
      Array.from({ length: levels }, (_, level) => ({ name: `V${level + 1}`, value: `$(V${level})$(V${level})` }));
    const started = { name: "V0", value: "0123456789abcdef" };
    assert.equal(build({ env: [started, ...doubled(13)] })["V13"]?.length, 128 * 1024);
    const before = process.memoryUsage().rss;
    assert.throws(() => build({ env: [started, ...doubled(26)] }), {
      message: 'environment variable "V14" is longer than 131072 bytes: shorten it, or move the large value to a file',
    });
    const over = "environment, command and args of the container exceed 2097152 bytes in total";
    const large = { name: "L", value: "x".repeat(100_000) };
    const many = (name: (index: number) => string) =>
      Array.from({ length: 50_000 }, (_, index) => ({ name: name(index), value: "$(L)" }));
    for (const name of [(index: number) => `M${index}`, () => "SAME"])
      assert.throws(
        () => build({ env: [large, ...many(name)] }),
        (error: Error) => error.message.startsWith(over),
      );
    assert.ok(process.memoryUsage().rss - before < 128 * 1024 ** 2, "the values were not built");
  });
  it("enforces the limits for values from objects and fields, and decodes only requested keys of a secret", () => {
    const text = "x".repeat(200_000);
    const big: Secret = { metadata: meta("login"), data: { K: Buffer.from(text).toString("base64"), SMALL: "eA==" } };
    const secrets = new Map([["login", big]]);
    const from = (key: string) => ({ name: key, valueFrom: { secretKeyRef: { name: "login", key } } });
    const message =
      'environment variable "K" is longer than 131072 bytes: shorten it, or move the large value to a file';
    assert.throws(() => build({ env: [from("K")] }, { secrets }), { message });
    assert.throws(() => build({ envFrom: [{ secretRef: { name: "login" } }] }, { secrets }), { message });
    const pod = aPod({ containers: [] }, { annotations: { k: text } });
    const field = { fieldRef: { fieldPath: "metadata.annotations['k']" } };
    assert.throws(() => build({ env: [{ name: "K", valueFrom: field }] }, { pod }), { message });
    const began = performance.now();
    build({ env: Array.from({ length: 20_000 }, () => from("SMALL")) }, { secrets });
    assert.ok(performance.now() - began < 5_000, "a moment, not minutes");
  });
  it("reports missing references in the kubelet's words", () => {
    const missing = (valueFrom: NonNullable<Container["env"]>[number]["valueFrom"]) => () =>
      build({ env: [{ name: "A", valueFrom }] });
    assert.throws(missing({ configMapKeyRef: { name: "settings", key: "K" } }), {
      message: "couldn't find key K in ConfigMap default/settings",
    });
    assert.throws(missing({ secretKeyRef: { name: "login", key: "K" } }), {
      message: "couldn't find key K in Secret default/login",
    });
    assert.throws(missing({ configMapKeyRef: { name: "none", key: "K" } }), {
      code: "not_found",
      message: 'configmap "none" not found',
    });
    assert.throws(() => build({ envFrom: [{ secretRef: { name: "none" } }] }), {
      code: "not_found",
      message: 'secret "none" not found',
    });
    assert.throws(missing({ configMapKeyRef: { name: "settings", key: "toString" } }), /couldn't find key toString/);
  });
});

describe("service variables", () => {
  const kubernetes = service("kubernetes", "default", "10.96.0.1", [{ name: "https", port: 443 }]);
  const dns = service("my-dns", "apps", "10.96.0.10", [{ name: "dns-udp", port: 53, protocol: "UDP" }, { port: 53 }]);
  const headless = service("headless", "apps", "None", [{ port: 80 }]);
  const pod = (enableServiceLinks?: boolean) =>
    aPod(enableServiceLinks === undefined ? {} : { enableServiceLinks }, { namespace: "apps" });
  const expectedMaster = {
    KUBERNETES_SERVICE_HOST: "10.96.0.1",
    KUBERNETES_SERVICE_PORT: "443",
    KUBERNETES_SERVICE_PORT_HTTPS: "443",
    KUBERNETES_PORT: "tcp://10.96.0.1:443",
    KUBERNETES_PORT_443_TCP: "tcp://10.96.0.1:443",
    KUBERNETES_PORT_443_TCP_PROTO: "tcp",
    KUBERNETES_PORT_443_TCP_PORT: "443",
    KUBERNETES_PORT_443_TCP_ADDR: "10.96.0.1",
  };
  it("service variables have the address at which pods reach the API server, if it is not that of its Service", () => {
    const elsewhere = { host: "api.example", port: 6443 };
    const expected = {
      KUBERNETES_SERVICE_HOST: "api.example",
      KUBERNETES_SERVICE_PORT: "6443",
      KUBERNETES_SERVICE_PORT_HTTPS: "6443",
      KUBERNETES_PORT: "tcp://api.example:6443",
      KUBERNETES_PORT_6443_TCP: "tcp://api.example:6443",
      KUBERNETES_PORT_6443_TCP_PROTO: "tcp",
      KUBERNETES_PORT_6443_TCP_PORT: "6443",
      KUBERNETES_PORT_6443_TCP_ADDR: "api.example",
    };
    for (const services of [[kubernetes, dns], [dns]])
      assert.deepEqual(build({}, { pod: pod(false), services: withKubernetesService(services, elsewhere) }), expected);
    const ofApps = service("kubernetes", "apps", "10.96.0.7", [{ port: 1 }]);
    const services = withKubernetesService([kubernetes, ofApps, dns], elsewhere);
    const all = build({}, { pod: pod(), services });
    assert.equal(all["KUBERNETES_SERVICE_HOST"], "10.96.0.7", "the pod's own namespace comes first, as ever");
    assert.equal(all["MY_DNS_SERVICE_HOST"], "10.96.0.10", "other services stay as they are");
    assert.equal(
      build({}, { pod: pod(false), services: withKubernetesService([], { host: "2001:db8::1", port: 1 }) })[
        "KUBERNETES_PORT"
      ],
      "tcp://[2001:db8::1]:1",
    );
  });
  it("service variables always include the API server, and the pod's namespace unless service links are off", () => {
    const services = [kubernetes, dns, headless, service("foreign", "other", "10.96.0.9", [{ port: 1 }])];
    assert.deepEqual(build({}, { pod: pod(false), services }), expectedMaster);
    const all = build({}, { pod: pod(), services });
    assert.equal(all["MY_DNS_SERVICE_PORT"], "53");
    assert.equal(all["MY_DNS_SERVICE_PORT_DNS_UDP"], "53");
    assert.equal(all["MY_DNS_PORT"], "udp://10.96.0.10:53");
    assert.equal(all["MY_DNS_PORT_53_TCP"], "tcp://10.96.0.10:53");
    assert.ok(!Object.keys(all).some((name) => /HEADLESS|FOREIGN/.test(name)));
  });
  it("service variables have IPv6 addresses in brackets, prefer the pod's own namespace, and are overridden by env", () => {
    const own = service("kubernetes", "apps", "fd00::1", [{ port: 80 }]);
    for (const services of [
      [own, kubernetes],
      [kubernetes, own],
    ]) {
      assert.equal(build({}, { pod: pod(), services })["KUBERNETES_PORT"], "tcp://[fd00::1]:80");
    }
    const env = build(
      {
        env: [
          { name: "KUBERNETES_PORT", value: "mine" },
          { name: "URL", value: "$(KUBERNETES_SERVICE_HOST)" },
        ],
      },
      { services: [kubernetes] },
    );
    assert.deepEqual([env["KUBERNETES_PORT"], env["URL"]], ["mine", "10.96.0.1"]);
  });
});

describe("environment references", () => {
  it("each environment reference is listed once, as optional only if all its uses are optional", () => {
    const container = aContainer("c", {
      envFrom: [{ configMapRef: { name: "a", optional: true } }, { secretRef: { name: "s" } }],
      env: [
        { name: "X", valueFrom: { configMapKeyRef: { name: "a", key: "k" } } },
        { name: "Y", valueFrom: { secretKeyRef: { name: "t", key: "k", optional: true } } },
      ],
    });
    assert.deepEqual(environmentReferences(container), [
      { kind: "configMap", name: "a", optional: false },
      { kind: "secret", name: "s", optional: false },
      { kind: "secret", name: "t", optional: true },
    ]);
  });
});
