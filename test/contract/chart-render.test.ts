import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { before, describe, test } from "node:test";
import type {
  V1ConfigMap,
  V1Deployment,
  V1NetworkPolicyPeer,
  V1NetworkPolicyPort,
  V1Pod,
  V1Service,
} from "@kubernetes/client-node";
import { parse } from "yaml";
import { readCriConfig } from "../../providers/cri/config.ts";
import { readDockerConfig } from "../../providers/docker/config.ts";
import { readSshConfig } from "../../providers/ssh/config.ts";
import { parseCommandLine } from "../../src/config/command-line.ts";
import type { NodeConfig } from "../../src/config/node-config.ts";
import { caseFiles, goldenOf, objectsIn, ofKind, podOf, templateArguments, valueFiles } from "../harness/chart.ts";
import { chart, findHelm } from "../harness/helm.ts";
import { must } from "../harness/processes.ts";
import { restrictedBreaches } from "../harness/pod-security.ts";

/** What lies outside of the release's namespace, or in no namespace. */
const clusterScoped = new Set([
  "ClusterRole",
  "ClusterRoleBinding",
  "CustomResourceDefinition",
  "MutatingAdmissionPolicy",
  "MutatingAdmissionPolicyBinding",
  "ValidatingAdmissionPolicy",
  "ValidatingAdmissionPolicyBinding",
]);

const files = valueFiles();

describe("the rendered chart", { timeout: 600_000 }, () => {
  let helm: string;
  const texts = new Map<string, string>();
  const objects = (name: string) => objectsIn(texts.get(name) ?? "");
  const one = <T>(name: string, kind: string): T => {
    const [found] = ofKind<T>(objects(name), kind);
    assert.ok(found, `${name} has no ${kind}`);
    return found;
  };
  /** The Deployment's Pod. */
  const podIn = (name: string) => {
    const pod = objects(name).flatMap((object) => (object.kind === "Deployment" ? [podOf(object)?.spec] : []))[0];
    const [container] = pod?.containers ?? [];
    assert.ok(pod && container);
    return { pod, container };
  };
  const valuesOf = (name: string) => files.find((file) => file.name === name)?.path ?? "";
  /** The nodes of a render, as graftlet itself reads them from the file in its Pod. */
  const nodesOf = (name: string): readonly NodeConfig[] => {
    const { args = [] } = podIn(name).container;
    const io = {
      readFile: (path: string) => {
        assert.equal(path, "/etc/graftlet/configuration/nodes.yaml");
        return one<V1ConfigMap>(name, "ConfigMap").data?.["nodes.yaml"] ?? "";
      },
      listDir: () => [],
      isExecutable: () => false,
      hostname: () => "pod",
      env: { KUBERNETES_SERVICE_HOST: "10.0.0.1" },
    };
    const asked = parseCommandLine(args, io);
    assert.equal(asked.kind, "run");
    return asked.kind === "run" ? asked.nodes : [];
  };

  before(async () => {
    helm = await findHelm();
    for (const { name, path } of files) texts.set(name, await must([helm, ...templateArguments("--values", path)]));
  });

  test("renders one Deployment for each case of chart-testing", async () => {
    const cases = caseFiles();
    assert.ok(cases.length > 3 && cases.every(({ name }) => name.endsWith("-values.yaml")));
    for (const { name, path } of cases) {
      const rendered = objectsIn(await must([helm, ...templateArguments("--values", path)]));
      assert.equal(ofKind(rendered, "Deployment").length, 1, name);
    }
  });

  for (const { name, golden } of files)
    test(`renders ${name} exactly as its golden file, which contains no CRDs (GRAFTLET_UPDATE_GOLDEN=1 rewrites it)`, () => {
      const text = goldenOf(texts.get(name) ?? "");
      if (process.env["GRAFTLET_UPDATE_GOLDEN"] === "1") writeFileSync(golden, text);
      assert.equal(text, readFileSync(golden, "utf8"));
    });

  test("gives every object the standard labels, and every namespaced object a namespace", () => {
    for (const { name } of files) {
      for (const { kind, metadata } of objects(name)) {
        const what = `${kind} ${metadata.name} of ${name}`;
        for (const label of ["name", "instance", "version", "managed-by"])
          assert.ok(metadata.labels?.[`app.kubernetes.io/${label}`], `${what} lacks ${label}`);
        assert.equal(metadata.labels?.["helm.sh/chart"], "graftlet-0.1.0", what);
        assert.equal(metadata.namespace === undefined, clusterScoped.has(kind), what);
      }
    }
  });

  test("gives no two objects the same name, within a release or between releases", () => {
    for (const { name } of files) {
      const keys = objects(name).map(({ kind, metadata }) => `${kind} ${metadata.namespace}/${metadata.name}`);
      assert.equal(new Set(keys).size, keys.length, name);
      for (const { metadata, kind } of objects(name))
        if (metadata.namespace !== "graftlet" && kind !== "CustomResourceDefinition")
          assert.match(metadata.name, /^edge-graftlet\.graftlet((\.[a-z]+){1,2}(\.edge-[a-z0-9-]+)?)?$/);
    }
  });

  test("renders pods that meet the restricted profile, except for local nodes", () => {
    for (const { name } of files) {
      for (const object of objects(name)) {
        const { kind, metadata } = object;
        const pod = podOf(object);
        if (!pod) continue;
        const breaches = restrictedBreaches(pod.spec);
        const mayBreach = name.startsWith("local-") && kind !== "Pod";
        assert.equal(breaches.length > 0, mayBreach, `${kind} ${metadata.name} of ${name}: ${breaches.join(", ")}`);
      }
    }
  });

  test("renders a configuration that graftlet and its providers accept", () => {
    for (const { name, path } of files) {
      const nodes = nodesOf(name);
      const values = parse(readFileSync(path, "utf8")) as { readonly nodes: readonly unknown[] };
      assert.equal(nodes.length, values.nodes.length);
      for (const { provider, providerConfig, nodeName } of nodes) {
        if (provider === "ssh") readSshConfig(providerConfig);
        else if (provider === "docker") readDockerConfig(providerConfig, nodeName);
        else readCriConfig(providerConfig, { containerRuntimeEndpoint: "unix:///x", imageServiceEndpoint: "" });
      }
    }
  });

  test("passes each node's values to its configuration", () => {
    const [first, press, agent, sealed] = nodesOf("several");
    assert.ok(first && press && agent && sealed);
    const target = (value: string) => ({ key: "graftlet.dev/target", value, effect: "NoSchedule" });
    assert.deepEqual(
      [first.kubelet.port, press.kubelet.port, agent.kubelet.port, sealed.kubelet.port],
      [10250, 10251, 10252, 10253],
    );
    assert.deepEqual(first.kubelet.registerWithTaints, [target("edge-1")]);
    assert.deepEqual(agent.kubelet.registerWithTaints, []);
    assert.deepEqual(
      press.kubelet.registerWithTaints.map(({ key, value, effect }) => `${key}=${value}:${effect}`),
      ["graftlet.dev/target=press.hall-2:NoSchedule", "dedicated=press:NoExecute"],
    );
    assert.deepEqual(press.nodeLabels, {
      "graftlet.dev/target": "press.hall-2",
      "node.kubernetes.io/exclude-from-external-load-balancers": "",
      site: "north",
      shift: "yes",
      rack: "0777",
    });
    assert.equal(press.kubelet.providerID, "graftlet://graftlet/edge/press.hall-2");
    assert.deepEqual(press.kubelet.systemReserved, { cpu: "500m", memory: "512Mi", "ephemeral-storage": "1Gi" });
    assert.deepEqual(
      [press.kubelet.maxPods, press.kubelet.failSwapOn, first.kubelet.failSwapOn],
      [20, false, undefined],
    );
    assert.deepEqual(readSshConfig(press.providerConfig).login, {
      kind: "password",
      passwordFile: "/etc/graftlet/nodes/press.hall-2/ssh-password",
    });
    assert.deepEqual(
      readSshConfig(sealed.providerConfig).proxyJump.map(({ host, port, user, login }) => [host, port, user, login]),
      [
        [
          "jump.example",
          22,
          "hop",
          {
            kind: "key",
            privateKeyFile: "/etc/graftlet/nodes/sealed_0/ssh-privatekey",
            certificateFile: "/etc/graftlet/nodes/sealed_0/ssh-certificate",
          },
        ],
        ["192.0.2.1", 2222, "root", { kind: "agent", agentSocket: "/agent/socket" }],
      ],
    );
    assert.deepEqual(readSshConfig(sealed.providerConfig).login, {
      kind: "key",
      privateKeyFile: "/etc/graftlet/nodes/sealed/ssh-privatekey",
      passphraseFile: "/etc/graftlet/nodes/sealed/ssh-passphrase",
    });
    assert.deepEqual(readSshConfig(first.providerConfig).trust, {
      kind: "knownHosts",
      file: "/etc/graftlet/nodes/edge-1/known_hosts",
    });
    assert.deepEqual(
      nodesOf("service-account").map(({ identity }) => identity),
      ["serviceAccount", "node"],
    );
  });

  test("gives each node its own root directory, and mounts only directories that are not inside another mount", () => {
    const roots = (name: string) => nodesOf(name).map(({ rootDir }) => rootDir);
    assert.deepEqual(roots("root-directories"), ["/var/lib/kubelet", "/var/lib/kubelet/beside", "/var/lib/kubelet"]);
    const local = "local-root-directories";
    assert.deepEqual(roots(local), ["/var/lib/kubelet", "/var/lib/kubelet/beside", "/srv/apart"]);
    const { volumeMounts = [] } = podIn(local).container;
    assert.deepEqual(
      volumeMounts.filter((mount) => mount.mountPropagation === "Bidirectional").map(({ mountPath }) => mountPath),
      ["/var/lib/kubelet", "/srv/apart"],
    );
  });

  test("lets the account approve certificates for nodes that request their own, unless this is disabled", async () => {
    const rendered = async (name: string, ...set: string[]) => {
      const text = await must([helm, ...templateArguments("--values", valuesOf(name), ...set)]);
      const [map] = ofKind<V1ConfigMap>(objectsIn(text), "ConfigMap");
      return [
        /kind: ValidatingAdmissionPolicy\nmetadata:\n {2}name: edge-graftlet\.graftlet\.approvals\n/.test(text),
        /resources: \[certificatesigningrequests\/approval\]\n +verbs: \[update\]/.test(text),
        /resources: \[signers\]\n +resourceNames: \[kubernetes.io\/kubelet-serving\]\n +verbs: \[approve\]/.test(text),
        map?.data?.["nodes.yaml"]?.includes("approveServingCertificates: true"),
      ];
    };
    const yes = [true, true, true, true];
    const no = [false, false, false, false];
    assert.deepEqual(await rendered("one-over-ssh"), yes);
    assert.deepEqual(await rendered("one-over-ssh", "--set", "admissionPolicy.create=false"), [
      false,
      true,
      true,
      true,
    ]);
    assert.deepEqual(await rendered("one-over-ssh", "--set", "approveServingCertificates=false"), no);
    const without = "nodes[0].kubeletConfiguration.serverTLSBootstrap=false";
    assert.deepEqual(await rendered("one-over-ssh", "--set", without), no);
    assert.deepEqual(await rendered("everything"), no);
    assert.deepEqual(await rendered("service-account"), yes);
    assert.deepEqual(
      nodesOf("one-over-ssh").map(({ approvesServing }) => approvesServing),
      [true],
    );
  });

  test("grants reading endpoints only if a node's pods use the service tunnel, or may use it later", async () => {
    const reads = async (...set: string[]) =>
      /resources: \[endpointslices\]\n +verbs: \[list, watch\]/.test(
        await must([helm, ...templateArguments("--values", valuesOf("one-over-ssh"), ...set)]),
      );
    const found = await Promise.all([
      reads(),
      ...["auto", "tunneled", "isolated", "routed"].map((network) => reads("--set", `nodes[0].ssh.network=${network}`)),
    ]);
    assert.deepEqual(found, [true, true, true, false, false]);
  });

  test("gives each node a Service whose port leads to it, and mounts each Secret where its node expects it", () => {
    for (const { name } of files) {
      const { pod, container } = podIn(name);
      const services = new Map(
        ofKind<V1Service>(objects(name), "Service")
          .filter(isOfNode)
          .map(({ metadata, spec }) => [metadata?.name, spec?.ports]),
      );
      const own = nodesOf(name).flatMap(({ kubelet, kubeletAddress }) =>
        kubeletAddress.of === "service" ? [[kubeletAddress.service, kubelet.port] as const] : [],
      );
      assert.deepEqual(
        services,
        new Map(own.map(([service, targetPort]) => [service, [{ name: "kubelet", port: 10_250, targetPort }]])),
      );
      for (const [service] of own) assert.match(service, /^[a-z][a-z0-9-]{0,61}[a-z0-9]$/);
      const mounts = container.volumeMounts ?? [];
      assert.deepEqual(
        mounts.map((mount) => mount.name),
        pod.volumes?.map((volume) => volume.name),
      );
      for (const { providerConfig, provider } of nodesOf(name)) {
        if (provider !== "ssh") continue;
        const { login, reverse } = readSshConfig(providerConfig);
        const ofLogin =
          login.kind === "key" ? login.privateKeyFile : login.kind === "agent" ? login.agentSocket : login.passwordFile;
        for (const file of [ofLogin, ...(reverse ? [reverse.hostKeyFile, reverse.authorizedKeysFile] : [])])
          assert.ok(
            mounts.some(({ mountPath }) => file.startsWith(`${mountPath}/`)),
            `${file} of ${name}`,
          );
      }
    }
  });

  test("rolls out a new Pod only when the configuration changes", async () => {
    const podWith = async (...set: string[]) => {
      const text = await must([helm, ...templateArguments("--values", valuesOf("one-over-ssh"), ...set)]);
      return ofKind<V1Deployment>(objectsIn(text), "Deployment")[0]?.spec?.template;
    };
    const usual = await podWith();
    assert.deepEqual(await podWith("--set", "onUninstall=drain"), usual);
    assert.notDeepEqual(await podWith("--set", "nodes[0].labels.a=b"), usual);
  });

  test("the NetworkPolicy admits the API server and metrics scrapers to the kubelet APIs, and nothing else", () => {
    interface Policy {
      readonly spec: { readonly policyTypes: readonly string[]; readonly ingress: readonly Rule[] };
    }
    interface Rule {
      readonly from: readonly V1NetworkPolicyPeer[];
      readonly ports: readonly V1NetworkPolicyPort[];
    }
    const having = files.filter(({ name }) => ofKind<Policy>(objects(name), "NetworkPolicy").length > 0);
    assert.deepEqual(
      having.map(({ name }) => name),
      ["dials-in", "fleet", "several", "tunneled"],
    );
    const policy = one<Policy>("several", "NetworkPolicy");
    assert.deepEqual(policy?.spec.policyTypes, ["Ingress"]);
    const [rule, ...others] = policy?.spec.ingress ?? [];
    assert.deepEqual(others, []);
    assert.deepEqual(
      rule?.from.map((peer) => peer.ipBlock?.cidr ?? peer.podSelector?.matchLabels?.["app.kubernetes.io/name"]),
      ["192.0.2.10/32", "2001:db8::10/128", "prometheus"],
    );
    assert.deepEqual(
      rule?.ports.map(({ port }) => port),
      nodesOf("several").map(({ kubelet }) => kubelet.port),
    );
    const [, toListener] = one<Policy>("dials-in", "NetworkPolicy").spec.ingress;
    assert.deepEqual(toListener, { ports: [{ protocol: "TCP", port: 2222 }] });
    const [, toPods] = one<Policy>("tunneled", "NetworkPolicy").spec.ingress;
    assert.deepEqual(toPods, { ports: [{ protocol: "TCP", port: 20_000, endPort: 29_999 }] });
  });

  test("answers probes on the host network only to its own machine", () => {
    for (const { name } of files) {
      const { pod, container } = podIn(name);
      const address = /^healthzBindAddress: (.*)$/m.exec(
        one<V1ConfigMap>(name, "ConfigMap").data?.["nodes.yaml"] ?? "",
      );
      const local = pod.hostNetwork === true;
      assert.equal(address?.[1], local ? "127.0.0.1" : "0.0.0.0", name);
      for (const probe of [container.livenessProbe, container.readinessProbe])
        if (probe) assert.equal(probe.httpGet?.host, local ? "127.0.0.1" : undefined, name);
    }
  });

  test("lets reverse tunnels reach only the Deployment's Pod and the drain Pod", () => {
    const services = ofKind<V1Service>(objects("dials-in"), "Service");
    const listener = services.find(({ metadata }) => metadata?.name === "edge-graftlet-listener");
    const selector = Object.entries(listener?.spec?.selector ?? {});
    assert.ok(selector.length > 0);
    const chosen = objects("dials-in").filter((object) => {
      const labels = podOf(object)?.labels;
      return labels && selector.every(([key, value]) => labels[key] === value);
    });
    assert.deepEqual(
      chosen.map(({ kind, metadata }) => `${kind} ${metadata.name}`),
      ["Deployment edge-graftlet", "Job edge-graftlet-leave"],
    );
  });

  test("the Service and the Deployment select only the Deployment's Pod", () => {
    for (const { name } of files) {
      const selectors = [
        ...ofKind<V1Service>(objects(name), "Service")
          .filter(isOfNode)
          .map(({ spec }) => spec?.selector),
        ...ofKind<V1Deployment>(objects(name), "Deployment").map(({ spec }) => spec?.selector.matchLabels),
      ];
      for (const selector of selectors) {
        const chosen = objects(name).filter((object) => {
          const labels = podOf(object)?.labels;
          return labels && Object.entries(selector ?? {}).every(([key, value]) => labels[key] === value);
        });
        assert.deepEqual(
          chosen.map(({ kind }) => kind),
          ["Deployment"],
        );
      }
    }
  });

  test("passes the helm test script unchanged, without variables that Kubernetes would expand", () => {
    const [script = ""] = one<V1Pod>("one-over-ssh", "Pod").spec?.containers[0]?.args ?? [];
    assert.equal(script, readFileSync(`${chart}/files/test.mjs`, "utf8"));
    assert.doesNotMatch(script, /\$\(/);
  });

  test("publishes pods of tunneled nodes with an owner that its role allows", () => {
    assert.deepEqual(nodesOf("tunneled")[0]?.endpoints, {
      owner: "edge-graftlet.graftlet.endpoints",
      namespaces: ["shop"],
    });
    assert.equal(nodesOf("several")[0]?.endpoints, undefined);
  });
});

/** Of a node's kubelet API, not the listener's. */
function isOfNode({ metadata }: V1Service): boolean {
  return metadata?.annotations?.["graftlet.dev/node"] !== undefined;
}
