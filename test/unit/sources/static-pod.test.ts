import assert from "node:assert/strict";
import { test } from "node:test";
import { expectKind, manifestObject } from "../../../src/sources/manifest.ts";
import { staticPod } from "../../../src/sources/static-pod.ts";

const origin = { nodeName: "Node-1", of: { file: "/m/web.yaml" } } as const;
const read = (text: string, from: Parameters<typeof staticPod>[1] = origin) => {
  const object = manifestObject(text);
  expectKind(object, "Pod");
  return staticPod(object, from);
};
const web = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: c
    image: nginx
`;
const container = (more: string) => `${web}${more}`;

test("defaults pod-level requests to those of the containers, then to the limits", () => {
  const resourcesOf = (whole: string, ofContainer = "{}") =>
    read(container(`    resources: ${ofContainer}\n  resources: ${whole}\n`)).pod.spec.resources;
  assert.deepEqual(resourcesOf("{limits: {cpu: 2, memory: 1Gi}}", "{requests: {cpu: 100m}}"), {
    limits: { cpu: "2", memory: "1Gi" },
    requests: { cpu: "100m", memory: "1Gi" },
  });
  assert.deepEqual(resourcesOf("{limits: {cpu: 2}, requests: {cpu: 1}}", "{limits: {hugepages-2Mi: 4Mi}}"), {
    limits: { cpu: "2", "hugepages-2Mi": "4Mi" },
    requests: { cpu: "1", "hugepages-2Mi": "4Mi" },
  });
  assert.deepEqual(resourcesOf("{requests: {cpu: 1}}", "{requests: {memory: 1Mi}}"), { requests: { cpu: "1" } });
  assert.equal(read(web).pod.spec.resources, undefined);
});

test("converts a manifest to a pod of this node with the API server's defaults", () => {
  const { pod, uidGiven, unknown } = read(
    container(`    ports: [{containerPort: 80}]
    resources: {limits: {cpu: 1, memory: 64Mi}}
    readinessProbe: {httpGet: {port: 80}}
  - {name: d, image: "nginx:1.27"}
`),
  );
  const { uid } = pod.metadata;
  assert.match(uid, /^[0-9a-f]{32}$/);
  assert.deepEqual([uidGiven, unknown], [false, []]);
  assert.deepEqual(pod, {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: "web-node-1",
      namespace: "default",
      uid,
      labels: { app: "web" },
      annotations: { "kubernetes.io/config.hash": uid },
    },
    spec: {
      restartPolicy: "Always",
      dnsPolicy: "ClusterFirst",
      terminationGracePeriodSeconds: 30,
      schedulerName: "default-scheduler",
      enableServiceLinks: true,
      securityContext: {},
      nodeName: "Node-1",
      tolerations: [{ operator: "Exists", effect: "NoExecute" }],
      containers: [
        {
          name: "c",
          image: "nginx",
          imagePullPolicy: "Always",
          terminationMessagePath: "/dev/termination-log",
          terminationMessagePolicy: "File",
          ports: [{ containerPort: 80, protocol: "TCP" }],
          resources: { limits: { cpu: "1", memory: "64Mi" }, requests: { cpu: "1", memory: "64Mi" } },
          readinessProbe: {
            httpGet: { port: 80, path: "/", scheme: "HTTP" },
            timeoutSeconds: 1,
            periodSeconds: 10,
            successThreshold: 1,
            failureThreshold: 3,
          },
        },
        {
          name: "d",
          image: "nginx:1.27",
          imagePullPolicy: "IfNotPresent",
          terminationMessagePath: "/dev/termination-log",
          terminationMessagePolicy: "File",
          resources: {},
        },
      ],
    },
    status: { phase: "Pending" },
  });
});

test("keeps the priority class name: the API server resolves it for the mirror pod", () => {
  const { spec } = read(container("  priorityClassName: system-node-critical\n")).pod;
  assert.deepEqual([spec.priorityClassName, spec.priority], ["system-node-critical", undefined]);
  assert.equal(read(container("  priority: 2000001000\n")).pod.spec.priority, 2_000_001_000);
});

test("derives the UID from content, node and file, independent of formatting", () => {
  const uid = (text: string, from?: Parameters<typeof staticPod>[1]) => read(text, from).pod.metadata.uid;
  const first = uid(web);
  const reordered = '{"kind":"Pod","spec":{"containers":[{"image":"nginx","name":"c"}]},"apiVersion":"v1",';
  assert.equal(uid(`${reordered}"metadata":{"labels":{"app":"web"},"name":"web"}}`), first);
  const others = [
    uid(web.replace("app: web", "app: db")),
    uid(container("  volumes: [{name: v, emptyDir: {}}]\n")),
    uid(web, { ...origin, nodeName: "node-2" }),
    uid(web, { ...origin, of: { file: "/m/other.yaml" } }),
    uid(web, { ...origin, of: { url: "http://h/web.yaml" } }),
  ];
  assert.equal(new Set([first, ...others]).size, 6);
  assert.deepEqual(
    [
      uid(web.replace("name: web,", "name: web, uid: mine,")),
      read(web.replace("name: web,", "name: web, uid: mine,")).uidGiven,
    ],
    ["mine", true],
  );
});

test("adds a NoExecute toleration to pods from files, not from URLs", () => {
  const tolerating = container("  tolerations: [{effect: NoExecute, operator: Exists}]\n");
  assert.equal(read(tolerating).pod.spec.tolerations?.length, 1);
  assert.equal(read(web, { ...origin, of: { url: "http://h/" } }).pod.spec.tolerations, undefined);
});

test("ignores fields that only the API server sets, and reports unknown fields", () => {
  const { pod, unknown } = read(
    web.replace("name: web,", "name: web, resourceVersion: '5', deletionTimestamp: '2026-01-01T00:00:00Z',") +
      "    imagePulPolicy: Never\n  hostNetwork: null\nstatus: {phase: Running}\n",
  );
  assert.deepEqual(Object.keys(pod.metadata).sort(), ["annotations", "labels", "name", "namespace", "uid"]);
  assert.deepEqual(pod.status, { phase: "Pending" });
  assert.deepEqual(unknown, ["spec.containers[0].imagePulPolicy"]);
});

test("parses YAML 1.1, where yes is true", () => {
  assert.equal(read(container("  hostNetwork: yes\n")).pod.spec.hostNetwork, true);
});

test("sets host ports of pods on the host network", () => {
  const { pod } = read(container("    ports: [{containerPort: 80}]\n  hostNetwork: true\n"));
  assert.deepEqual(pod.spec.containers[0]?.ports, [{ containerPort: 80, hostPort: 80, protocol: "TCP" }]);
});

const refusals: readonly (readonly [what: string, text: string, sentence: RegExp])[] = [
  ["no content", " \n", /^it is empty/],
  ["invalid YAML", "a: [b\nkind: Pod", /^it is not YAML: /],
  ["only its first half", web.slice(0, web.indexOf("spec")), /^spec: is missing/],
  ["a truncated last line", `${web}  restartPol`, /^it is not YAML: /],
  ["text instead of an object", "hello", /^it contains no object/],
  [
    "a YAML list of pods",
    `- ${JSON.stringify(manifestObject(web))}`,
    /^it contains a list: put each pod in its own file/,
  ],
  ["two documents", `${web}---\n${web}`, /^it contains several documents/],
  ["a List", "apiVersion: v1\nkind: List\nitems: []", /^it is a List: put each pod in its own file/],
  ["a kind other than Pod", web.replace("Pod", "Deployment"), /^its kind is "Deployment": write kind: Pod$/],
  ["an apiVersion other than v1", web.replace("v1", "v2"), /^its apiVersion is "v2"/],
  ["a duplicate key", `${web}kind: Pod\n`, /^it is not YAML: Map keys must be unique/],
  ["no pod name", web.replace("name: web,", ""), /^metadata.name: is missing/],
  ["a name with a slash", web.replace("name: web", "name: a/b"), /^metadata.name: "a\/b-node-1" is not a valid name/],
  ["a name that is a parent directory", web.replace("name: web", "name: .."), /^metadata.name: /],
  ["a number as its name", web.replace("name: web", "name: 5"), /^metadata.name: is not a string: put it in quotes/],
  ["a namespace with a slash", web.replace("name: web", "name: web, namespace: ../../x"), /^metadata.namespace: /],
  [
    "a UID with a slash",
    web.replace("name: web", "name: web, uid: ../../etc"),
    /^metadata.uid: "..\/..\/etc" is not a valid UID/,
  ],
  ["a UID that is a parent directory", web.replace("name: web", "name: web, uid: .."), /^metadata.uid: /],
  ["a label that is not a string", web.replace("app: web", "app: true"), /^metadata.labels\[app\]: expected a string/],
  [
    "the annotation of a mirror pod",
    web.replace("labels", "annotations: {kubernetes.io/config.mirror: x}, labels"),
    /is reserved for mirror pods/,
  ],
  ["no containers", web.replace(/containers:[^]*/, "containers: []"), /^spec.containers: is empty/],
  ["a string instead of a list", web.replace(/containers:[^]*/, "containers: c"), /^spec.containers: expected a list/],
  [
    "two containers of the same name",
    container("  - {name: c, image: i}\n"),
    /is already the name of another container/,
  ],
  ["no image", web.replace("    image: nginx\n", ""), /^spec.containers\[0\].image: is missing/],
  ["a port of 70000", container("    ports: [{containerPort: 70000}]\n"), /ports\[0\].containerPort: write a number/],
  [
    "a mount of a missing volume",
    container("    volumeMounts: [{name: v, mountPath: /v}]\n"),
    /there is no volume "v"/,
  ],
  [
    "a subPath that leads out of its volume",
    container("    volumeMounts: [{name: v, mountPath: /v, subPath: ../x}]\n  volumes: [{name: v}]\n"),
    /leads out of the volume/,
  ],
  [
    "a volume with two sources",
    container("  volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}]\n"),
    /has several sources/,
  ],
  ["a probe without an action", container("    livenessProbe: {}\n"), /livenessProbe: has no action/],
  [
    "a request above its limit",
    container("    resources: {limits: {cpu: 1}, requests: {cpu: 2}}\n"),
    /more than the limit/,
  ],
  [
    "a reference to a Secret",
    container("    envFrom: [{secretRef: {name: s}}]\n"),
    /^secret "s": a static pod may not use secrets/,
  ],
  [
    "a reference to a ConfigMap",
    container("  volumes: [{name: v, configMap: {name: m}}]\n"),
    /^config map "m": a static pod may not/,
  ],
  ["a service account", container("  serviceAccountName: sa\n"), /^spec.serviceAccountName: a static pod may not/],
  [
    "a PersistentVolumeClaim",
    container("  volumes: [{name: v, persistentVolumeClaim: {claimName: p}}]\n"),
    /persistentVolumeClaim/,
  ],
  [
    "a service account token",
    container("  volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]\n"),
    /^spec.volumes\[0\].projected.serviceAccountToken/,
  ],
  ["too many aliases", bomb(), /^its aliases cannot be expanded/],
];

/** A few hundred bytes that expand to a billion. */
function bomb(): string {
  const rows = Array.from({ length: 9 }, (_, i) => `a${i + 1}: &a${i + 1} [${Array(9).fill(`*a${i}`).join(", ")}]`);
  return ["a0: &a0 [x, x]", ...rows].join("\n");
}

for (const [what, text, sentence] of refusals) {
  test(`refuses a manifest with ${what} in one sentence`, () => {
    assert.throws(
      () => read(text),
      (error: Error & { code?: string }) =>
        sentence.test(error.message) && !error.message.includes("\n") && error.code === "invalid_argument",
      String(sentence),
    );
  });
}

test("accepts volumes that need no API server: files of the machine and the pod's own fields", () => {
  const { pod } = read(
    container(`  volumes:
  - {name: a, hostPath: {path: /etc}}
  - {name: b, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
  - {name: c}
`),
  );
  assert.deepEqual(pod.spec.volumes, [
    { name: "a", hostPath: { path: "/etc", type: "" } },
    {
      name: "b",
      downwardAPI: {
        defaultMode: 0o644,
        items: [{ path: "name", fieldRef: { fieldPath: "metadata.name", apiVersion: "v1" } }],
      },
    },
    { name: "c", emptyDir: {} },
  ]);
});
