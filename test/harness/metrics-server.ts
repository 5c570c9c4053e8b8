import { addImage } from "../cluster/images/build.ts";
import type { Cluster } from "./cluster.ts";
import { servedStore } from "./registry.ts";

/** The image of the catalog. */
const image = "registry.k8s.io/metrics-server/metrics-server:v0.9.0";
const namespace = "kube-system";
const name = "metrics-server";
const labels = { "k8s-app": name };
const port = 10250;

const rbac = { apiVersion: "rbac.authorization.k8s.io/v1" };
const roleApi = "rbac.authorization.k8s.io";
const subjects = [{ kind: "ServiceAccount", name, namespace }];

/** As metrics-server's own manifests have it: what it may read, of API server and kubelets. */
const rights: readonly object[] = [
  { apiVersion: "v1", kind: "ServiceAccount", metadata: { name, namespace } },
  {
    ...rbac,
    kind: "ClusterRole",
    metadata: { name: "system:metrics-server" },
    rules: [
      { apiGroups: [""], resources: ["nodes/metrics"], verbs: ["get"] },
      { apiGroups: [""], resources: ["pods", "nodes"], verbs: ["get", "list", "watch"] },
    ],
  },
  {
    ...rbac,
    kind: "ClusterRoleBinding",
    metadata: { name: "system:metrics-server" },
    roleRef: { apiGroup: roleApi, kind: "ClusterRole", name: "system:metrics-server" },
    subjects,
  },
  {
    ...rbac,
    kind: "ClusterRoleBinding",
    metadata: { name: "metrics-server:system:auth-delegator" },
    roleRef: { apiGroup: roleApi, kind: "ClusterRole", name: "system:auth-delegator" },
    subjects,
  },
  {
    ...rbac,
    kind: "RoleBinding",
    metadata: { name: "metrics-server-auth-reader", namespace },
    roleRef: { apiGroup: roleApi, kind: "Role", name: "extension-apiserver-authentication-reader" },
    subjects,
  },
];

const probe = (path: string) => ({ httpGet: { path, port, scheme: "HTTPS" }, periodSeconds: 2, failureThreshold: 30 });

const pod = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, namespace, labels },
  spec: {
    serviceAccountName: name,
    priorityClassName: "system-cluster-critical",
    tolerations: [{ operator: "Exists" }],
    terminationGracePeriodSeconds: 1,
    volumes: [{ name: "tmp", emptyDir: {} }],
    containers: [
      {
        name,
        image,
        args: [
          "--cert-dir=/tmp",
          `--secure-port=${port}`,
          "--kubelet-preferred-address-types=InternalIP",
          "--kubelet-use-node-status-port",
          // The node's certificate is its own.
          "--kubelet-insecure-tls",
          // The shortest, which has to be longer than a request may take.
          "--metric-resolution=10s",
          "--kubelet-request-timeout=8s",
        ],
        readinessProbe: probe("/readyz"),
        volumeMounts: [{ name: "tmp", mountPath: "/tmp" }],
        securityContext: {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          runAsNonRoot: true,
          runAsUser: 1000,
          capabilities: { drop: ["ALL"] },
        },
      },
    ],
  },
};

/** Gives a cluster whose node is Ready the real metrics-server, in a pod of that node, behind the API server's aggregation.
 *  Ready means that it has read the node twice.
 *  @see https://github.com/kubernetes-sigs/metrics-server */
export async function startMetricsServer(cluster: Cluster): Promise<void> {
  await addImage("metrics-server/metrics-server", servedStore(cluster.layout), console.error);
  await cluster.apply([
    ...rights,
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name, namespace },
      spec: { selector: labels, ports: [{ port: 443, targetPort: port }] },
    },
    {
      apiVersion: "apiregistration.k8s.io/v1",
      kind: "APIService",
      metadata: { name: "v1beta1.metrics.k8s.io" },
      spec: {
        service: { name, namespace },
        group: "metrics.k8s.io",
        version: "v1beta1",
        insecureSkipTLSVerify: true,
        groupPriorityMinimum: 100,
        versionPriority: 100,
      },
    },
    pod,
  ]);
  const wait = ["wait", "--for=condition=Ready", `pod/${name}`, `-n=${namespace}`, "--timeout=120s"];
  await cluster.mustKubectl(wait, { timeoutMs: 130_000 });
}
