import { addImage } from "../cluster/images/build.ts";
import { type Cluster } from "./cluster.ts";
import { addresses } from "./namespaces.ts";
import { servedStore } from "./registry.ts";
import { kubectlTimeout, patience } from "./wait.ts";

/** The image of the catalog. */
const image = "registry.k8s.io/coredns/coredns:v1.15.0";

/** A name of the world outside, and what it is there: the documentation's addresses (RFC 5737). */
export const outside = { name: "www.example.org", address: "192.0.2.80" };

/** Where the world outside answers, a name server that knows nothing of the cluster. */
export const outsideServer = "10.96.0.11";

const labels = { "k8s-app": "kube-dns" };
const namespace = "kube-system";
const domain = "cluster.local";

/** Services, pods' names and Kubernetes' own; whatever else is asked goes to the world outside, which is a server of this
 *  process too. @see https://coredns.io/plugins/kubernetes/ */
const corefile = `.:53 {
  errors
  ready
  kubernetes ${domain} in-addr.arpa ip6.arpa {
    ttl 5
  }
  forward . 127.0.0.1:5353
  cache 5
}
.:5353 {
  hosts {
    ${outside.address} ${outside.name}
    fallthrough
  }
  forward . 127.0.0.1:5354
}
.:5354 {
  template ANY ANY . {
    rcode NXDOMAIN
  }
}
`;

const readable = [
  { apiGroups: [""], resources: ["services", "pods", "namespaces"], verbs: ["list", "watch"] },
  { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: ["list", "watch"] },
];

const pod = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "coredns", namespace, labels },
  spec: {
    serviceAccountName: "coredns",
    dnsPolicy: "Default",
    priorityClassName: "system-cluster-critical",
    tolerations: [{ operator: "Exists" }],
    terminationGracePeriodSeconds: 1,
    volumes: [{ name: "config", configMap: { name: "coredns" } }],
    containers: [
      {
        name: "coredns",
        image,
        args: ["-conf", "/etc/coredns/Corefile"],
        volumeMounts: [{ name: "config", mountPath: "/etc/coredns", readOnly: true }],
        readinessProbe: { httpGet: { path: "/ready", port: 8181 }, periodSeconds: 1 },
        securityContext: {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ["ALL"], add: ["NET_BIND_SERVICE"] },
        },
      },
    ],
  },
};

function service(name: string, clusterIP: string, targetPort: number): object {
  const ports = ["UDP", "TCP"].map((protocol) => ({
    name: protocol === "UDP" ? "dns" : "dns-tcp",
    port: 53,
    protocol,
    targetPort,
  }));
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name, namespace },
    spec: { clusterIP, selector: labels, ports },
  };
}

/** Gives a cluster whose node is Ready a name server behind the Service that its nodes send pods to: CoreDNS, in a pod. */
export async function startDns(cluster: Cluster): Promise<void> {
  await addImage("coredns/coredns", servedStore(cluster.layout), console.error);
  const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "coredns" };
  await cluster.apply([
    { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: "coredns", namespace } },
    { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", metadata: { name: "coredns" }, rules: readable },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name: "coredns" },
      roleRef,
      subjects: [{ kind: "ServiceAccount", name: "coredns", namespace }],
    },
    { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "coredns", namespace }, data: { Corefile: corefile } },
    service("kube-dns", addresses.dns, 53),
    service("outside", outsideServer, 5353),
    pod,
  ]);
  const ready = ["wait", "--for=condition=Ready", "pod/coredns", `-n=${namespace}`, kubectlTimeout(60)];
  await cluster.mustKubectl(ready, { timeoutMs: patience(60_000) + 5_000 });
}
