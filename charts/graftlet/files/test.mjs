// `helm test`: runs a pod on each node of the release, and reads its log back through the API server. The nodes are those of the values
// (NODES), and with FLEET the ones of the namespace's GraftedNodes.
import { readFileSync } from "node:fs";

const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port, NAMESPACE, NODES, IMAGE, NAME } = process.env;
const { LABELS = "{}", ANNOTATIONS = "{}", FLEET } = process.env;
const account = "/var/run/secrets/kubernetes.io/serviceaccount";
const api = `https://${host.includes(":") ? `[${host}]` : host}:${port}`;
const pods = `/api/v1/namespaces/${NAMESPACE}/pods`;
const patienceMs = 120_000;
/** Number of nodes that are tried at a time. */
const concurrency = 8;

/** Calls the API server. @returns the status and text of the response. */
async function call(method, path, body) {
  const token = readFileSync(`${account}/token`, "utf8");
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const answer = await fetch(api + path, { method, headers, body: body && JSON.stringify(body) });
  return { status: answer.status, text: await answer.text() };
}

async function read(path) {
  const { status, text } = await call("GET", path);
  if (status !== 200) throw new Error(`GET ${path} failed with status ${status}: ${text}`);
  return text;
}

const pause = () => new Promise((resolve) => setTimeout(resolve, 1_000));

function podOn(node, name, says) {
  const restricted = {
    allowPrivilegeEscalation: false,
    capabilities: { drop: ["ALL"] },
    runAsNonRoot: true,
    runAsUser: 65532,
    seccompProfile: { type: "RuntimeDefault" },
  };
  const hello = { name: "hello", image: IMAGE, command: ["echo", says], securityContext: restricted };
  return {
    apiVersion: "v1",
    kind: "Pod",
    // The labels and annotations of the release's own Pods, such as those that prevent the injection of sidecars.
    metadata: { name, labels: JSON.parse(LABELS), annotations: JSON.parse(ANNOTATIONS) },
    spec: {
      nodeSelector: { "graftlet.dev/target": node },
      tolerations: [{ operator: "Exists" }],
      restartPolicy: "Never",
      automountServiceAccountToken: false,
      containers: [hello],
    },
  };
}

/** Runs a pod on the node to completion. @returns the reason of a failure; undefined on success. */
async function tryNode(node, name) {
  const says = `hello from ${node}`;
  const made = await call("POST", pods, podOn(node, name, says));
  if (made.status !== 201) return `cannot create the pod: ${made.text}`;
  let pod;
  for (const until = Date.now() + patienceMs; Date.now() < until; await pause()) {
    pod = JSON.parse(await read(`${pods}/${name}`));
    if (pod.status.phase === "Succeeded" || pod.status.phase === "Failed") break;
  }
  if (pod.status.phase !== "Succeeded")
    return `the pod is ${pod.status.phase} after ${patienceMs / 1000} s: ${JSON.stringify(pod.status)}`;
  const log = await call("GET", `${pods}/${name}/log`);
  if (log.status === 200 && log.text === `${says}\n`) return undefined;
  return `the pod ran, but reading its log returned ${log.status} ${log.text.trim()}; ${await reachability(node)}`;
}

/** Says whether the API server reaches the kubelet API. The test's account may read only the Nodes of the values. */
async function reachability(node) {
  const { status, text } = await call("GET", `/api/v1/nodes/${node}`);
  if (status !== 200) return `kubectl describe node ${node} shows the condition KubeletReachable`;
  return JSON.parse(text).status.conditions.find(({ type }) => type === "KubeletReachable")?.message ?? "";
}

/** Tries one node. @returns true if it did what it should. */
async function test(node, index) {
  const name = `${NAME}-${index}`;
  await call("DELETE", `${pods}/${name}?gracePeriodSeconds=0`);
  while ((await call("GET", `${pods}/${name}`)).status !== 404) await pause();
  const why = await tryNode(node, name);
  await call("DELETE", `${pods}/${name}`);
  console.log(`node ${node}: ${why ?? "a pod ran there, and its log came back"}`);
  return why === undefined;
}

/** The GraftedNodes of the namespace, without those that show nodes of the values: names of the nodes that should run, and whether any
 *  of them is not Ready, which is printed. */
async function fleetNodes() {
  const { items } = JSON.parse(await read(`/apis/graftlet.dev/v1alpha1/namespaces/${NAMESPACE}/graftednodes`));
  const nodes = [];
  let failed = false;
  for (const { metadata, spec, status } of items.filter((object) => !object.spec.static)) {
    const ready = status?.conditions?.find(({ type }) => type === "Ready");
    if (ready?.status === "True") nodes.push(metadata.name);
    else {
      const isStopped = ["Paused", "Inactive", "Leaving"].includes(ready?.reason) || spec.paused === true;
      const why = `${ready?.reason ?? "Unknown"}: ${ready?.message ?? "graftlet has not written a status"}`;
      console.log(`GraftedNode ${metadata.name}: ${isStopped ? "not tried" : "not Ready"}: ${why}`);
      failed ||= !isStopped;
    }
  }
  return { nodes, failed };
}

const fleet = FLEET ? await fleetNodes() : { nodes: [], failed: false };
const waiting = [...JSON.parse(NODES), ...fleet.nodes].entries();
let { failed } = fleet;
const work = async () => {
  // All workers take from the same iterator.
  for (const [index, node] of waiting) failed = !(await test(node, index)) || failed;
};
await Promise.all(Array.from({ length: concurrency }, work));
process.exit(failed ? 1 : 0);
