import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { certificatesIn, type ClusterCertificates, type KeyPair } from "./certificates.ts";
import { addresses } from "./namespaces.ts";
import type { Layout } from "./state.ts";
import type { Tools } from "./tools.ts";

/** A Go program whose garbage is collected when it has grown to five times what lives: a cluster is young and small, and collecting is a
 *  third of its work. */
const lazily = ["env", "GOGC=400"] as const;

/** Features that are off by default: of test/integration/stop-signals.test.ts and volumes-certificates.test.ts. Kubernetes 1.34 serves what
 *  the latter needs in another version. */
function optionalFeatures(): readonly string[] {
  const stopSignals = "ContainerStopSignals=true";
  if (process.env["GRAFTLET_TEST_KUBERNETES"] !== undefined) return [`--feature-gates=${stopSignals}`];
  const certificates = "ClusterTrustBundle=true,ClusterTrustBundleProjection=true,PodCertificateRequest=true";
  return [`--feature-gates=${stopSignals},${certificates}`, "--runtime-config=certificates.k8s.io/v1beta1=true"];
}

/** Where the API server answers, inside the cluster's network. */
export const apiServerUrl = `https://${addresses.node}:${addresses.apiServerPort}`;

/** The alternative names of the API server's certificate. */
export const apiServerNames = [
  "DNS:kubernetes",
  "DNS:kubernetes.default",
  "DNS:kubernetes.default.svc",
  "DNS:kubernetes.default.svc.cluster.local",
  "DNS:localhost",
  "IP:127.0.0.1",
  `IP:${addresses.node}`,
  `IP:${addresses.apiServerService}`,
];

/** The command line of etcd. Its data need not survive a power cut, so it does not wait for the disk. */
export function etcdArgv(tools: Tools, layout: Layout): string[] {
  return [
    ...lazily,
    tools.path("etcd"),
    "--name=lab",
    `--data-dir=${layout.etcd}`,
    "--unsafe-no-fsync",
    "--log-level=warn",
    `--listen-client-urls=${addresses.etcd}`,
    `--advertise-client-urls=${addresses.etcd}`,
    "--listen-peer-urls=http://127.0.0.1:2380",
    "--initial-advertise-peer-urls=http://127.0.0.1:2380",
    "--initial-cluster=lab=http://127.0.0.1:2380",
  ];
}

/** The command line of kube-apiserver. @see https://kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver/ */
export function apiServerArgv(tools: Tools, layout: Layout, certificates: ClusterCertificates): string[] {
  const { ca, frontProxyCa, frontProxyClient, apiServer, apiServerKubeletClient, serviceAccounts } = certificates;
  return [
    ...lazily,
    tools.path("kube-apiserver"),
    `--etcd-servers=${addresses.etcd}`,
    `--advertise-address=${addresses.node}`,
    `--secure-port=${addresses.apiServerPort}`,
    `--service-cluster-ip-range=${addresses.services}`,
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
    "--enable-bootstrap-token-auth=true",
    "--allow-privileged=true",
    `--client-ca-file=${ca.cert}`,
    `--tls-cert-file=${apiServer.cert}`,
    `--tls-private-key-file=${apiServer.key}`,
    `--kubelet-client-certificate=${apiServerKubeletClient.cert}`,
    `--kubelet-client-key=${apiServerKubeletClient.key}`,
    "--kubelet-preferred-address-types=InternalIP",
    `--requestheader-client-ca-file=${frontProxyCa.cert}`,
    "--requestheader-allowed-names=front-proxy-client",
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    `--proxy-client-cert-file=${frontProxyClient.cert}`,
    `--proxy-client-key-file=${frontProxyClient.key}`,
    "--enable-aggregator-routing=true",
    `--service-account-key-file=${serviceAccounts.publicKey}`,
    `--service-account-signing-key-file=${serviceAccounts.privateKey}`,
    "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    `--cert-dir=${join(layout.dir, "apiserver")}`,
    "--profiling=false",
    ...optionalFeatures(),
    ...(existsSync(auditPolicy(layout))
      ? [`--audit-policy-file=${auditPolicy(layout)}`, `--audit-log-path=${auditLog(layout)}`]
      : []),
    ...(existsSync(egressSelector(layout))
      ? [`--egress-selector-config-file=${egressSelector(layout)}`, "--permit-port-sharing"]
      : []),
  ];
}

/** The command line of another API server beside it, at an address of its own that the certificate `serving` names.
 *  @param udsName the socket through which it reaches nodes, pods and Services. */
export function secondApiServerArgv(
  tools: Tools,
  layout: Layout,
  { address, serving, udsName }: { readonly address: string; readonly serving: KeyPair; readonly udsName: string },
): string[] {
  // Of a flag that is given twice the last one holds.
  return [
    ...apiServerArgv(tools, layout, { ...certificatesIn(layout.pki), apiServer: serving }),
    `--advertise-address=${address}`,
    `--bind-address=${address}`,
    `--egress-selector-config-file=${egressThrough(layout, udsName, "second-egress-selector.yaml")}`,
  ];
}

/** Says by which way the API server reaches nodes, pods and Services, where it is to. */
function egressSelector({ dir }: Layout, name = "egress-selector.yaml"): string {
  return join(dir, name);
}

/** Lets the API server, from its next start, reach them through a proxy at a socket, and lets another one share its port.
 *  @returns the file that says so. */
export function egressThrough(layout: Layout, udsName: string, name?: string): string {
  const connection = { proxyProtocol: "HTTPConnect", transport: { uds: { udsName } } };
  const selector = {
    apiVersion: "apiserver.k8s.io/v1beta1",
    kind: "EgressSelectorConfiguration",
    egressSelections: [{ name: "cluster", connection }],
  };
  const file = egressSelector(layout, name);
  writeFileSync(file, stringify(selector));
  return file;
}

/** Says what the API server writes down of what it is asked, where it is to. */
function auditPolicy({ dir }: Layout): string {
  return join(dir, "audit-policy.yaml");
}

/** A JSON object a line. @see https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/#audit-k8s-io-v1-Event */
export function auditLog({ dir }: Layout): string {
  return join(dir, "audit.log");
}

/** Lets the API server, from its next start, write down what the users of a group ask. */
export function auditGroup(layout: Layout, group: string): void {
  const policy = {
    apiVersion: "audit.k8s.io/v1",
    kind: "Policy",
    omitStages: ["RequestReceived"],
    rules: [{ level: "Metadata", userGroups: [group] }, { level: "None" }],
  };
  writeFileSync(auditPolicy(layout), stringify(policy));
}

/** The command line of kube-controller-manager. @see https://kubernetes.io/docs/reference/command-line-tools-reference/kube-controller-manager/ */
export function controllerManagerArgv(
  tools: Tools,
  kubeconfig: string,
  { ca, serviceAccounts }: ClusterCertificates,
): string[] {
  return [
    ...lazily,
    tools.path("kube-controller-manager"),
    `--kubeconfig=${kubeconfig}`,
    `--authentication-kubeconfig=${kubeconfig}`,
    `--authorization-kubeconfig=${kubeconfig}`,
    "--bind-address=127.0.0.1",
    "--leader-elect=false",
    // By default 20 requests a second, which makes a test with many claims wait.
    "--kube-api-qps=200",
    "--kube-api-burst=400",
    "--use-service-account-credentials=true",
    `--service-account-private-key-file=${serviceAccounts.privateKey}`,
    `--root-ca-file=${ca.cert}`,
    `--cluster-signing-cert-file=${ca.cert}`,
    `--cluster-signing-key-file=${ca.key}`,
    "--profiling=false",
  ];
}

/** The command line of kube-scheduler. */
export function schedulerArgv(tools: Tools, kubeconfig: string): string[] {
  return [
    ...lazily,
    tools.path("kube-scheduler"),
    `--kubeconfig=${kubeconfig}`,
    `--authentication-kubeconfig=${kubeconfig}`,
    `--authorization-kubeconfig=${kubeconfig}`,
    "--bind-address=127.0.0.1",
    "--leader-elect=false",
    "--profiling=false",
  ];
}

/** How kube-proxy leads connections to Services. @see https://kubernetes.io/docs/reference/networking/virtual-ips/#proxy-modes */
export type ProxyMode = "iptables" | "ipvs" | "nftables";

/**
 * The command line of kube-proxy, started anew whenever it ends: it ends on purpose when the node's
 * addresses change, as they do when the node registers after it.
 */
export function proxyArgv(tools: Tools, kubeconfig: string, nodeName: string, mode: ProxyMode = "iptables"): string[] {
  const proxy = [
    tools.path("kube-proxy"),
    `--kubeconfig=${kubeconfig}`,
    `--hostname-override=${nodeName}`,
    `--proxy-mode=${mode}`,
    `--cluster-cidr=${addresses.cniPods}`,
    "--bind-address=0.0.0.0",
    "--metrics-bind-address=127.0.0.1:10249",
    "--healthz-bind-address=127.0.0.1:10256",
    "--conntrack-max-per-core=0",
    "--conntrack-tcp-timeout-established=0",
    "--conntrack-tcp-timeout-close-wait=0",
  ];
  return ["sh", "-c", 'while :; do "$@"; sleep 1; done', "kube-proxy", ...proxy];
}
