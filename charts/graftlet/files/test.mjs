// `helm test`: runs a pod on each node of the release and reads its log back through the API server.
import { readFileSync } from "node:fs";

const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port, NAMESPACE, NODES, IMAGE, NAME } = process.env;
const { LABELS = "{}", ANNOTATIONS = "{}" } = process.env;
const account = "/var/run/secrets/kubernetes.io/serviceaccount";
const api = `https://${host.includes(":") ? `[${host}]` : host}:${port}/api/v1`;
const pods = `/namespaces/${NAMESPACE}/pods`;
const patienceMs = 120_000;

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
  const { conditions } = JSON.parse(await read(`/nodes/${node}`)).status;
  const reachable = conditions.find(({ type }) => type === "KubeletReachable");
  return `the pod ran, but reading its log returned ${log.status} ${log.text.trim()}; ${reachable?.message ?? ""}`;
}

let failed = false;
for (const [index, node] of JSON.parse(NODES).entries()) {
  const name = `${NAME}-${index}`;
  await call("DELETE", `${pods}/${name}?gracePeriodSeconds=0`);
  while ((await call("GET", `${pods}/${name}`)).status !== 404) await pause();
  const why = await tryNode(node, name);
  await call("DELETE", `${pods}/${name}`);
  console.log(`node ${node}: ${why ?? "a pod ran there, and its log came back"}`);
  failed ||= why !== undefined;
}
process.exit(failed ? 1 : 0);
