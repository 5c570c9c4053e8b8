import type { ContainerStatus, Pod } from "../../../src/objects.ts";
import type { Cluster } from "../../harness/cluster.ts";
import { release } from "../../harness/helm-lab.ts";
import { images } from "../../harness/pods.ts";

/** How a user places a pod on the new node: the scheduler does the rest. */
export const placed = {
  nodeSelector: { "graftlet.dev/target": release.node },
  tolerations: [{ key: "graftlet.dev/target", operator: "Exists", effect: "NoSchedule" }],
};

const labels = (app: string) => ({ labels: { app } });

/** A web server of two replicas, a Job, a pod that answers what it is told, and one that says nothing of the node. */
export const workload = [
  {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name: "web" },
    spec: {
      replicas: 2,
      selector: { matchLabels: { app: "web" } },
      template: {
        metadata: labels("web"),
        spec: {
          ...placed,
          terminationGracePeriodSeconds: 1,
          containers: [
            {
              name: "web",
              image: images.agnhost,
              command: ["sh", "-c", "echo serving; exec /agnhost netexec --http-port=8080"],
              readinessProbe: { httpGet: { path: "/healthz", port: 8080 }, periodSeconds: 1 },
            },
          ],
        },
      },
    },
  },
  {
    apiVersion: "batch/v1",
    kind: "Job",
    metadata: { name: "greeter" },
    spec: {
      template: {
        metadata: labels("greeter"),
        spec: {
          ...placed,
          restartPolicy: "Never",
          containers: [
            {
              name: "greeter",
              image: images.busybox,
              command: ["sh", "-c", "echo hello from $NODE"],
              env: [{ name: "NODE", valueFrom: { fieldRef: { fieldPath: "spec.nodeName" } } }],
            },
          ],
        },
      },
    },
  },
  {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "parrot", ...labels("parrot") },
    spec: {
      ...placed,
      terminationGracePeriodSeconds: 1,
      containers: [
        {
          name: "parrot",
          image: images.busybox,
          stdin: true,
          command: ["sh", "-c", 'while read -r line; do echo "you said: $line"; done'],
        },
      ],
    },
  },
  {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "stray", ...labels("stray") },
    spec: {
      terminationGracePeriodSeconds: 1,
      containers: [{ name: "c", image: images.busybox, command: ["sleep", "infinity"] }],
    },
  },
];

/** The pods of an app of the workload. */
export async function podsOf(cluster: Cluster, app: string): Promise<readonly Pod[]> {
  const listed = await cluster.mustKubectl(["get", "pods", `--selector=app=${app}`, "--output=json"]);
  return (JSON.parse(listed) as { items: Pod[] }).items;
}

/** What must stay the same of the pods that run on whatever happens to graftlet: name, container, restarts, start. */
export async function standing(cluster: Cluster): Promise<readonly string[]> {
  const all = [...(await podsOf(cluster, "web")), ...(await podsOf(cluster, "parrot"))];
  const line = (pod: Pod, { containerID, restartCount, state }: ContainerStatus) =>
    [pod.metadata.uid, pod.metadata.name, containerID, restartCount, state?.running?.startedAt].join(" ");
  return all.flatMap((pod) => (pod.status?.containerStatuses ?? []).map((status) => line(pod, status))).toSorted();
}
