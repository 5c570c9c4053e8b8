import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Node } from "../../src/objects.ts";
import { forgetPeak, memoryOf } from "../harness/holdings.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { configMap, mount, mounts, secret } from "../harness/manifests.ts";
import { podFolder, volumeFolder } from "../harness/pod-machine.ts";
import { images, shell, statusOf } from "../harness/pods.ts";
import { shown, volumesLab, waitsForVolume } from "../harness/volumes.ts";

let lab: Lab;
before(async () => {
  lab = await startLab("volumes", volumesLab);
});
after(() => lab?.[Symbol.asyncDispose]());

describe("volumes of API objects", { concurrency: 4 }, () => {
  test("configMap and secret: keys become files with the requested paths and modes", async () => {
    const { cluster } = lab;
    await cluster.apply([
      configMap(
        "texts",
        { plain: "one", other: "two" },
        { binaryData: { binary: Buffer.from([0, 255, 10]).toString("base64") } },
      ),
      secret("words", { password: "s3cret-w0rd" }),
    ]);
    const volumes = [
      { name: "all", configMap: { name: "texts" } },
      {
        name: "some",
        configMap: {
          name: "texts",
          defaultMode: 0o440,
          items: [
            { key: "plain", path: "deep/er/plain" },
            { key: "other", path: "other", mode: 0o600 },
          ],
        },
      },
      { name: "secret", secret: { secretName: "words", defaultMode: 0o400 } },
    ];
    const text = await shown(
      lab.pods,
      "objects",
      volumes,
      "cd /; find -L all some secret -type f | grep -v '\\.\\.' | sort | xargs stat -L -c '%n %a'; cat some/deep/er/plain secret/password; od -An -tx1 all/binary; grep ' /secret ' /proc/mounts | cut -d ' ' -f 3; readlink all/plain",
    );
    assert.equal(
      text,
      "all/binary 644\nall/other 644\nall/plain 644\nsecret/password 400\nsome/deep/er/plain 440\nsome/other 600\nones3cret-w0rd 00 ff 0a\ntmpfs\n..data/plain\n",
    );
    assert.ok(!lab.agent.log().includes("s3cret-w0rd"));
  });

  test("updates of ConfigMaps and Secrets reach running pods atomically within seconds, and only changes are written", async () => {
    const { cluster, pods } = lab;
    await cluster.apply([
      configMap("live", { a: "1", b: "1" }),
      secret("live", { a: "1" }),
      configMap("still", { a: "1" }),
    ]);
    const volumes = [
      { name: "map", configMap: { name: "live" } },
      { name: "secret", secret: { secretName: "live" } },
      {
        name: "both",
        projected: {
          sources: [
            { configMap: { name: "live" } },
            { secret: { name: "live", items: [{ key: "a", path: "secret-a" }] } },
          ],
        },
      },
      { name: "still", configMap: { name: "still" } },
      { name: "later", configMap: { name: "later", optional: true } },
    ];
    await pods.create("live", { volumes, containers: [{ volumeMounts: mounts(volumes) }] });
    const pod = await pods.ready("live");
    const at = (kind: string, volume: string) => volumeFolder(cluster, pod, kind, volume);
    const [map, secrets, both, still, later] = [
      at("configmap", "map"),
      at("secret", "secret"),
      at("projected", "both"),
      at("configmap", "still"),
      at("configmap", "later"),
    ];
    const stillBefore = readlinkSync(join(still, "..data"));
    assert.deepEqual(readdirSync(later), ["..data", readlinkSync(join(later, "..data"))].sort());
    await cluster.apply([
      configMap("still", { a: "1" }, { metadata: { name: "still", annotations: { touched: "again" } } }),
      configMap("later", { now: "here" }),
    ]);
    await pods.api.patch(
      "/api/v1/namespaces/default/configmaps/live",
      { data: { a: "2", b: null, c: "3" } },
      "merge-patch",
    );
    await pods.api.patch("/api/v1/namespaces/default/secrets/live", { stringData: { a: "2" } }, "merge-patch");
    const files = (path: string) =>
      Object.fromEntries(
        readdirSync(path)
          .filter((name) => !name.startsWith(".."))
          .sort()
          .map((name) => [name, readFileSync(join(path, name), "utf8")]),
      );
    const arrived = (path: string, wanted: object) =>
      cluster.waitFor(
        `${path} to be ${JSON.stringify(wanted)}`,
        () => {
          assert.deepEqual(files(path), wanted);
          return true;
        },
        30_000,
      );
    await Promise.all([
      arrived(map, { a: "2", c: "3" }),
      arrived(secrets, { a: "2" }),
      arrived(both, { a: "2", c: "3", "secret-a": "2" }),
      arrived(later, { now: "here" }),
    ]);
    assert.equal(readlinkSync(join(still, "..data")), stillBefore);
    const versions = () => readdirSync(map).filter((name) => /^\.\.\d/.test(name));
    await cluster.waitFor("the old version to be gone", () => versions().length === 1);
    assert.deepEqual(versions(), [readlinkSync(join(map, "..data"))]);
    assert.equal(
      await cluster.mustKubectl([
        "exec",
        "live",
        "--",
        "sh",
        "-c",
        "cat /map/a /map/c /secret/a /both/secret-a /later/now; ls /map",
      ]),
      "2322herea\nc\n",
    );
    assert.equal(statusOf(await pods.ready("live"))?.restartCount, 0);
  });

  test("a missing object or key keeps the pod waiting unless it is optional", async () => {
    const { cluster, pods } = lab;
    await cluster.apply([configMap("partial", { there: "x" }), secret("partial", { there: "x" })]);
    const items = [{ key: "gone", path: "gone" }];
    await Promise.all([
      waitsForVolume(
        lab.pods,
        "no-map",
        { name: "v", configMap: { name: "to-come" } },
        'configmap "to-come" not found',
      ),
      waitsForVolume(
        lab.pods,
        "no-secret",
        { name: "v", secret: { secretName: "to-come" } },
        'secret "to-come" not found',
      ),
      waitsForVolume(
        lab.pods,
        "no-projected",
        { name: "v", projected: { sources: [{ configMap: { name: "to-come" } }] } },
        'configmap "to-come" not found',
      ),
      waitsForVolume(
        lab.pods,
        "no-map-key",
        { name: "v", configMap: { name: "partial", items } },
        "configmap references non-existent config key: gone",
      ),
      waitsForVolume(
        lab.pods,
        "no-secret-key",
        { name: "v", secret: { secretName: "partial", items } },
        "references non-existent secret key: gone",
      ),
    ]);
    const optional = true;
    const volumes = [
      { name: "map", configMap: { name: "never", optional } },
      { name: "secret", secret: { secretName: "never", optional } },
      { name: "key", configMap: { name: "partial", items, optional } },
      { name: "all", projected: { sources: [{ secret: { name: "never", optional } }] } },
    ];
    assert.equal(
      await shown(lab.pods, "optional", volumes, "ls /map /secret /key /all"),
      "/all:\n\n/key:\n\n/map:\n\n/secret:\n",
    );
    await cluster.apply([
      configMap("to-come", { a: "b" }),
      secret("to-come", { a: "b" }),
      configMap("partial", { gone: "back" }),
      secret("partial", { gone: "back" }),
    ]);
    await Promise.all(
      ["no-map", "no-secret", "no-projected", "no-map-key", "no-secret-key"].map((name) => pods.ready(name)),
    );
  });

  test("items that repeat one value a thousand times are rejected without using memory", async () => {
    const { agent, cluster, pods } = lab;
    await cluster.apply([configMap("large", { value: "x".repeat(150_000) })]);
    const items = Array.from({ length: 1_000 }, (_, index) => ({ key: "value", path: `f${index}` }));
    forgetPeak(agent.pid);
    const before = memoryOf(agent.pid).peak;
    const message =
      "its files total 150000000 bytes, more than 67108864: select fewer items, or split them over several volumes";
    await waitsForVolume(pods, "multiplied", { name: "v", configMap: { name: "large", items } }, message);
    const grown = memoryOf(agent.pid).peak - before;
    assert.ok(grown < 64, `${grown.toFixed(0)} MiB`);
    await pods.remove("multiplied");
  });

  test("projected: contains a valid token, its CA, the namespace and pod fields", async () => {
    const { cluster, pods } = lab;
    await cluster.apply([configMap("part", { m: "map" }), secret("part", { s: "secret" })]);
    const sources = [
      { serviceAccountToken: { path: "token", audience: "vault", expirationSeconds: 600 } },
      { configMap: { name: "part" } },
      { secret: { name: "part", items: [{ key: "s", path: "s", mode: 0o444 }] } },
      {
        downwardAPI: {
          items: [
            { path: "labels", fieldRef: { fieldPath: "metadata.labels" } },
            { path: "name", fieldRef: { fieldPath: "metadata.name" } },
            { path: "cpu", resourceFieldRef: { containerName: "main", resource: "limits.cpu", divisor: "1m" } },
          ],
        },
      },
    ];
    const account = "/var/run/secrets/kubernetes.io/serviceaccount";
    const script = `cd ${account}; cat namespace; echo; curl -sS --max-time 10 --cacert ca.crt -H "Authorization: Bearer $(cat token)" -H 'Content-Type: application/json' -d '{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}' https://$KUBERNETES_SERVICE_HOST/apis/authentication.k8s.io/v1/selfsubjectreviews | grep '"username"'; stat -L -c '%a %u' /mixed/token /mixed/s /mixed/m; cat /mixed/m /mixed/s /mixed/name; echo; cat /mixed/cpu; echo; cat /mixed/labels; echo; cat /mixed/token`;
    await pods.create(
      "projected",
      {
        restartPolicy: "Never",
        securityContext: { runAsUser: 1234 },
        volumes: [{ name: "mixed", projected: { sources } }],
        containers: [
          shell(script, {
            image: images.agnhost,
            resources: { limits: { cpu: "50m" } },
            volumeMounts: [mount("mixed")],
          }),
        ],
      },
      { labels: { app: "projected", tier: "back" } },
    );
    const lines = (await pods.outputOf("projected")).split("\n");
    const pod = pods.history("projected").at(-1);
    assert.ok(pod);
    assert.equal(lines[0], "default");
    assert.match(lines[1] ?? "", /"username": ?"system:serviceaccount:default:default"/);
    assert.deepEqual(lines.slice(2, -1), [
      "600 1234",
      "444 0",
      "644 0",
      "mapsecretprojected",
      "50",
      'app="projected"',
      'tier="back"',
    ]);
    const token = lines.at(-1) ?? "";
    const claims = JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString()) as {
      exp: number;
      iat: number;
      aud: string[];
    };
    assert.deepEqual([claims.exp - claims.iat, claims.aud], [600, ["vault"]]);
    await pods.create("token-holder", {
      volumes: [{ name: "mixed", projected: { sources: sources.slice(0, 1) } }],
      containers: [{ volumeMounts: [mount("mixed")] }],
    });
    const holder = await pods.ready("token-holder");
    const held = readFileSync(join(volumeFolder(cluster, holder, "projected", "mixed"), "token"), "utf8");
    const review = await pods.api.create<{
      status: { authenticated?: boolean; user?: { extra?: Record<string, string[]> } };
    }>("/apis/authentication.k8s.io/v1/tokenreviews", {
      apiVersion: "authentication.k8s.io/v1",
      kind: "TokenReview",
      spec: { token: held, audiences: ["vault"] },
    });
    assert.equal(review.status.authenticated, true);
    assert.deepEqual(review.status.user?.extra?.["authentication.kubernetes.io/pod-uid"], [holder.metadata.uid]);
    assert.ok(!lab.agent.log().includes(held));
  });

  test("downwardAPI: contains the pod's fields and its containers' resources, and follows labels and annotations", async () => {
    const { pods, cluster } = lab;
    const items = [
      { path: "labels", fieldRef: { fieldPath: "metadata.labels" } },
      { path: "annotations/tier", mode: 0o400, fieldRef: { fieldPath: "metadata.annotations['tier']" } },
      { path: "cpu", resourceFieldRef: { containerName: "main", resource: "limits.cpu", divisor: "1m" } },
      { path: "memory", resourceFieldRef: { containerName: "main", resource: "requests.memory", divisor: "1Mi" } },
      { path: "all", resourceFieldRef: { containerName: "main", resource: "limits.memory" } },
    ];
    const volumes = [{ name: "pod", downwardAPI: { items, defaultMode: 0o640 } }];
    const resources = { limits: { cpu: "50m" }, requests: { memory: "3Mi" } };
    await pods.create(
      "downward",
      { volumes, containers: [{ resources, volumeMounts: mounts(volumes) }] },
      { labels: { app: "one" }, annotations: { tier: "back" } },
    );
    const pod = await pods.ready("downward");
    const folder = volumeFolder(cluster, pod, "downward-api", "pod");
    const text = (name: string) => readFileSync(join(folder, name), "utf8");
    const script = "cd /pod; stat -L -c %a labels annotations/tier; grep ' /pod ' /proc/mounts | cut -d ' ' -f 3";
    assert.equal(await cluster.mustKubectl(["exec", "downward", "--", "sh", "-c", script]), "640\n400\ntmpfs\n");
    assert.deepEqual(
      [text("labels"), text("annotations/tier"), text("cpu"), text("memory")],
      ['app="one"', "back", "50", "3"],
    );
    const { status } = await pods.api.get<Node>(`/api/v1/nodes/${pod.spec.nodeName}`);
    assert.equal(Number(text("all")), Number.parseInt(status?.allocatable?.["memory"] ?? "", 10) * 1024);
    await pods.patch("downward", { metadata: { labels: { app: "two", more: "yes" }, annotations: { tier: "front" } } });
    await cluster.waitFor("the new labels", () => {
      assert.deepEqual([text("labels"), text("annotations/tier")], ['app="two"\nmore="yes"', "front"]);
      return true;
    });
    assert.equal(statusOf(await pods.ready("downward"))?.restartCount, 0);
  });

  test("keeps the content of an immutable object when other objects in the volume change", async () => {
    const { cluster, pods } = lab;
    await cluster.apply([
      configMap("rock", { a: "1" }, { immutable: true }),
      { ...secret("rock", { b: "2" }), immutable: true },
      configMap("sand", { c: "3" }),
    ]);
    const sources = [{ configMap: { name: "rock" } }, { secret: { name: "rock" } }, { configMap: { name: "sand" } }];
    const volumes = [{ name: "all", projected: { sources } }];
    await pods.create("immutable", { volumes, containers: [{ volumeMounts: mounts(volumes) }] });
    const folder = volumeFolder(cluster, await pods.ready("immutable"), "projected", "all");
    await cluster.apply([configMap("sand", { c: "4" })]);
    await cluster.waitFor("the change", () => {
      assert.deepEqual(
        ["a", "b", "c"].map((name) => readFileSync(join(folder, name), "utf8")),
        ["1", "2", "4"],
      );
      return true;
    });
  });

  test("the later of two sources with the same path wins; a file in place of a directory keeps the pod waiting", async () => {
    const { cluster, pods } = lab;
    await cluster.apply([configMap("first", { same: "first", way: "file" }), secret("second", { same: "second" })]);
    const below = { items: [{ path: "way/name", fieldRef: { fieldPath: "metadata.name" } }] };
    const projected = (...sources: object[]) => [{ name: "all", projected: { sources } }];
    const both = projected({ configMap: { name: "first" } }, { secret: { name: "second" } });
    assert.equal(await shown(pods, "later-wins", both, "cat /all/same"), "second");
    await waitsForVolume(
      pods,
      "in-the-way",
      { name: "all", projected: { sources: [{ configMap: { name: "first" } }, { downwardAPI: below }] } },
      "way is a file in one source and a directory in another, which contains way/name: change one of the paths",
    );
    await pods.api.patch("/api/v1/namespaces/default/configmaps/first", { data: { way: null } }, "merge-patch");
    await pods.ready("in-the-way");
  });

  test("mounts objects of one MiB, and two hundred volumes of all kinds in one pod", async () => {
    const { cluster, pods } = lab;
    const size = 1_040_000;
    const create = (kind: string, object: object) => pods.api.create(`/api/v1/namespaces/default/${kind}`, object);
    await Promise.all([
      create("configmaps", configMap("huge", { key: "m".repeat(size) })),
      create("secrets", secret("huge", { key: "s".repeat(size) })),
      create("configmaps", configMap("tiny", { key: "m" })),
      create("secrets", secret("tiny", { key: "s" })),
    ]);
    const token = { serviceAccountToken: { path: "key", expirationSeconds: 3600 } };
    const name = { path: "key", fieldRef: { fieldPath: "metadata.name" } };
    const kinds = [
      { configMap: { name: "tiny" } },
      { secret: { secretName: "tiny" } },
      { projected: { sources: [token] } },
      { downwardAPI: { items: [name] } },
      { emptyDir: {} },
    ];
    const many = Array.from({ length: 198 }, (_, index) => ({ name: `v${index}`, ...kinds[index % kinds.length] }));
    const volumes = [
      { name: "map", configMap: { name: "huge" } },
      { name: "secret", secret: { secretName: "huge" } },
      ...many,
    ];
    const script = "wc -c < /map/key; wc -c < /secret/key; ls -d /v[0-9]* | wc -l; ls /v*/key | wc -l";
    const counted = await shown(pods, "many", volumes, script);
    assert.deepEqual(counted.split("\n").slice(0, 3), [String(size), String(size), "198"]);
    assert.equal(counted.trimEnd().split("\n").at(-1), String(many.filter((volume) => !("emptyDir" in volume)).length));
    const pod = pods.history("many").at(-1) ?? assert.fail();
    const gone = pods.gone("many");
    await pods.remove("many");
    await gone;
    await cluster.waitFor("its folder to be gone", () => !existsSync(podFolder(cluster, pod)));
  });
});
