import { certificatesIn, issue, type KeyPair, pairIn } from "../../harness/certificates.ts";
import { type Answer, type Asking, askKubelet } from "../../harness/kubelet-api.ts";
import type { Lab } from "../../harness/lab.ts";

/** Subresources of nodes that each have a service account of their name, with the right to get that and nothing else. */
export const subresources = [
  "proxy",
  "pods",
  "healthz",
  "configz",
  "metrics",
  "stats",
  "log",
  "checkpoint",
  "statusz",
] as const;

/** The log of the pod that every caller asks about. */
export const log = "/containerLogs/default/target/main";

/** Headers that ask for exec's protocol over a WebSocket. */
export const webSocket = [
  "Connection: Upgrade",
  "Upgrade: websocket",
  "Sec-WebSocket-Version: 13",
  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
  "Sec-WebSocket-Protocol: v4.channel.k8s.io",
];

/** Which certificate to issue: for clients by the cluster's CA unless said otherwise. */
export interface CertificateDraft {
  readonly organization?: string;
  readonly authority?: KeyPair;
  readonly usage?: "clientAuth" | "serverAuth";
}

/** Callers of the kubelet API, and a way to ask it as one of them. */
export interface Callers {
  ask(path: string, asking?: Asking): Promise<Answer>;
  /** The service account of a subresource, or `nothing`. */
  account(name: string): { readonly token: string };
  readonly admin: { readonly certificate: KeyPair };
  withCertificate(commonName: string, draft?: CertificateDraft): Promise<{ readonly certificate: KeyPair }>;
}

/** Makes the accounts and their rights: user `reader` may get, group `runners` may create on nodes/proxy. */
export async function createCallers(lab: Lab): Promise<Callers> {
  const { cluster } = lab;
  const { pki } = cluster.layout;
  const accounts = ["nothing", ...subresources];
  await cluster.apply(
    accounts.flatMap((name) => {
      const account = { kind: "ServiceAccount", metadata: { name, namespace: "default" } };
      const subject = { kind: "ServiceAccount", name, namespace: "default" };
      return [
        { apiVersion: "v1", ...account },
        ...allowing(`sa-${name}`, name === "nothing" ? "spec" : name, "get", subject),
      ];
    }),
  );
  const apiGroup = "rbac.authorization.k8s.io";
  await cluster.apply(allowing("cert-reader", "proxy", "get", { kind: "User", name: "reader", apiGroup }));
  await cluster.apply(allowing("cert-runners", "proxy", "create", { kind: "Group", name: "runners", apiGroup }));
  const tokens = new Map<string, string>();
  for (const name of accounts) tokens.set(name, (await cluster.mustKubectl(["create", "token", name])).trim());
  // A refusal is remembered for a while, so nobody may ask before the rights are known.
  for (const name of subresources) await hasRight(lab, { user: `system:serviceaccount:default:${name}` }, "get", name);
  await hasRight(lab, { user: "reader" }, "get", "proxy");
  await hasRight(lab, { user: "somebody", groups: ["runners"] }, "create", "proxy");
  return {
    ask: (path, asking) => askKubelet(cluster, path, asking),
    account: (name) => ({ token: tokens.get(name) ?? "" }),
    admin: { certificate: certificatesIn(pki).apiServerKubeletClient },
    async withCertificate(commonName, { organization, authority, usage = "clientAuth" } = {}) {
      const certificate = pairIn(pki, `caller-${commonName}-${usage}${authority ? "-other" : ""}`);
      await issue(certificate, authority ?? certificatesIn(pki).ca, {
        commonName,
        usage,
        ...(organization && { organization }),
      });
      return { certificate };
    },
  };
}

/** A ClusterRole on a subresource of nodes, and its binding. */
function allowing(name: string, subresource: string, verb: string, subject: object): object[] {
  const apiVersion = "rbac.authorization.k8s.io/v1";
  const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name };
  return [
    {
      apiVersion,
      kind: "ClusterRole",
      metadata: { name },
      rules: [{ apiGroups: [""], resources: [`nodes/${subresource}`], verbs: [verb] }],
    },
    { apiVersion, kind: "ClusterRoleBinding", metadata: { name }, roleRef, subjects: [subject] },
  ];
}

async function hasRight(
  { cluster, pods }: Lab,
  who: { user: string; groups?: string[] },
  verb: string,
  subresource: string,
): Promise<void> {
  const resourceAttributes = { verb, resource: "nodes", subresource, name: cluster.nodeName };
  const review = {
    apiVersion: "authorization.k8s.io/v1",
    kind: "SubjectAccessReview",
    spec: { ...who, resourceAttributes },
  };
  const path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
  await cluster.waitFor(
    `${who.user} to have rights`,
    async () => (await pods.api.create<{ status: { allowed: boolean } }>(path, review)).status.allowed,
  );
}
