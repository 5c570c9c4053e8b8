import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { bareName } from "../../src/pod/image-name.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { pluginVersion, writePlugins } from "../harness/credential-providers.ts";
import { mayAsk } from "../harness/manifests.ts";
import { openPods, type Pods, statusOf } from "../harness/pods.ts";
import { pullSecret } from "../harness/pull-secret.ts";

const audience = "registry.graftlet.test";
const annotation = "graftlet.test/identity";

const stack = new AsyncDisposableStack();
let cluster: Cluster;
let agent: Agent;
let pods: Pods;
let place: string;

/** Three images of the registry that asks for credentials, by whose credentials are for them. */
const imageOf = (whose: "node" | "plugin" | "account"): string => {
  const names = { node: "busybox:1.37.0-1", plugin: "nonroot:1.5", account: "agnhost:2.63.0" };
  return `${cluster.privateCredentials.server}/e2e-test-images/${names[whose]}`;
};

before(async () => {
  cluster = stack.use(await startCluster({ name: "credentials" }));
  place = join(cluster.layout.dir, "credentials");
  const { flags, env } = await writeCredentials();
  await prepareCluster();
  agent = stack.use(await startGraftlet(cluster, { args: [...flags, "-v=6"], env }));
  pods = stack.use(await openPods(cluster));
});
after(() => stack.disposeAsync());

/** A Docker configuration in the home of graftlet's user, and two programs; each has credentials for one image. */
async function writeCredentials(): Promise<{ flags: readonly string[]; env: Readonly<Record<string, string>> }> {
  const { server, username, password } = cluster.privateCredentials;
  mkdirSync(join(place, "home/.docker"), { recursive: true });
  const auth = Buffer.from(`${username}:${password}`).toString("base64");
  const config = { auths: { [bareName(imageOf("node"))]: { auth } } };
  writeFileSync(join(place, "home/.docker/config.json"), JSON.stringify(config), { mode: 0o600 });
  const answer = {
    kind: "CredentialProviderResponse",
    apiVersion: pluginVersion,
    cacheKeyType: "Image",
    auth: { [server]: { username, password } },
  };
  writeFileSync(join(place, "answer"), JSON.stringify(answer), { mode: 0o600 });
  const script = `cat >>${place}/$1; echo >>${place}/$1; cat "$ANSWER"`;
  const common = { defaultCacheDuration: "10m", env: [{ name: "ANSWER", value: join(place, "answer") }] };
  const tokenAttributes = {
    serviceAccountTokenAudience: audience,
    cacheType: "ServiceAccount",
    requireServiceAccount: true,
    requiredServiceAccountAnnotationKeys: [annotation],
  };
  const about = (whose: "plugin" | "account") => ({ ...common, matchImages: [bareName(imageOf(whose))] });
  const flags = writePlugins(join(place, "plugins"), [
    { name: "plain", script, fields: { ...about("plugin"), args: ["plain"] } },
    { name: "for-accounts", script, fields: { ...about("account"), args: ["for-accounts"], tokenAttributes } },
  ]);
  return { flags, env: { HOME: join(place, "home") } };
}

/** Service accounts that the plugin is asked for and not, and a pull secret. */
async function prepareCluster(): Promise<void> {
  const account = (name: string, annotations: object) => ({
    apiVersion: "v1",
    kind: "ServiceAccount",
    metadata: { name, namespace: "default", annotations },
  });
  const accounts = [account("annotated", { [annotation]: "7" }), account("other", {})];
  await cluster.apply([...mayAsk(audience), ...accounts, pullSecret(cluster, "own")]);
}

const asked = (program: string): readonly Record<string, unknown>[] =>
  existsSync(join(place, program))
    ? readFileSync(join(place, program), "utf8")
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line) as Record<string, unknown>)
    : [];

const create = (name: string, image: string, imagePullPolicy: string, spec: object = {}) =>
  pods.create(name, { containers: [{ image, imagePullPolicy, command: ["/bin/sh", "-c", "sleep 3600"] }], ...spec });
const isRefused = (pod: Pod): boolean => /^(ErrImagePull|ImagePullBackOff)$/.test(waiting(pod));
const waiting = (pod: Pod): string => statusOf(pod)?.state?.waiting?.reason ?? "";

describe("image pulls from a registry with authentication", { concurrency: 3 }, () => {
  test("pulls with the node's credentials for all of its pods", async () => {
    await create("of-node", imageOf("node"), "Always");
    await pods.ready("of-node");
    await create("of-anyone", imageOf("node"), "Never");
    await pods.ready("of-anyone");
  });

  test("pulls with credentials of a provider plugin, which is called once while its response is cached", async () => {
    await create("of-plugin", imageOf("plugin"), "Always");
    await pods.ready("of-plugin");
    await create("of-plugin-again", imageOf("plugin"), "Always");
    await pods.ready("of-plugin-again");
    const request = {
      kind: "CredentialProviderRequest",
      apiVersion: pluginVersion,
      image: bareName(imageOf("plugin")),
    };
    assert.deepEqual(asked("plain"), [request]);
    const metrics = await cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${agent.nodeName}/proxy/metrics`]);
    assert.match(metrics, /^kubelet_credential_provider_plugin_duration_count\{plugin_name="plain"\} 1$/m);
    assert.match(metrics, /^kubelet_credential_provider_config_info\{hash="sha256:[0-9a-f]{64}"\} 1$/m);
  });

  test("pulls with a provider plugin's credentials for a service account, but only for pods of that account", async () => {
    const image = imageOf("account");
    await create("of-account", image, "IfNotPresent", { serviceAccountName: "annotated" });
    await pods.ready("of-account");
    const [{ serviceAccountToken, serviceAccountAnnotations } = assert.fail(), ...more] = asked("for-accounts");
    assert.deepEqual([serviceAccountAnnotations, more], [{ [annotation]: "7" }, []]);
    const [, claims = ""] = String(serviceAccountToken).split(".");
    const { aud, sub } = JSON.parse(Buffer.from(claims, "base64url").toString()) as Record<string, unknown>;
    assert.deepEqual([aud, sub], [[audience], "system:serviceaccount:default:annotated"]);
    await create("of-same-account", image, "Never", { serviceAccountName: "annotated" });
    await create("of-other-account", image, "IfNotPresent", { serviceAccountName: "other" });
    await create("of-secret", image, "IfNotPresent", {
      serviceAccountName: "other",
      imagePullSecrets: [{ name: "own" }],
    });
    await pods.ready("of-same-account");
    await pods.until("of-other-account", "the registry to refuse", isRefused);
    await pods.ready("of-secret");
  });
});

test("logs no credentials", () => {
  const { username, password } = cluster.privateCredentials;
  const encoded = Buffer.from(`${username}:${password}`).toString("base64");
  const [{ serviceAccountToken } = assert.fail()] = asked("for-accounts");
  for (const secret of [password, encoded, String(serviceAccountToken)]) assert.ok(!agent.log().includes(secret));
});
