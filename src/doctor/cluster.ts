import type { ApiClient } from "../api/client.ts";
import type { ContainerCommand, ExecResult } from "../api/exec.ts";
import { isProblem } from "../api/node-conditions.ts";
import type { Clock } from "../lib/clock.ts";
import { ignoreCode, ignoreNotFound } from "../lib/errors.ts";
import type { Lease, Node, Pod } from "../objects.ts";
import { type TargetNetworks, compareRanges, readRanges } from "./cidrs.ts";
import { type Check, type Finding, type CheckResult, examine, failure, ok, warning } from "./findings.ts";

export interface ClusterExamination {
  readonly client: ApiClient;
  readonly nodeName: string;
  /** Runs a command in a container through the API server. @throws CodedError unimplemented if that is not supported. */
  readonly exec: (command: ContainerCommand, signal: AbortSignal) => Promise<ExecResult>;
  /** Undefined if the target does not report its networks. */
  readonly target: TargetNetworks | undefined;
  readonly clock: Clock;
}

/** Versions of the API server that graftlet is tested with. */
const testedMinors = [34, 35, 36];
const checkTimeoutMs = 15_000;

/** Checks the cluster as a node sees it, and the node as the cluster sees it. Writes nothing to the cluster. */
export async function examineCluster(of: ClusterExamination, signal: AbortSignal): Promise<readonly Finding[]> {
  const bounded = (name: string, look: Check["look"]): Check => ({
    name,
    look: (until) => look(of.clock.within(checkTimeoutMs, until)),
  });
  const server = await examine([bounded("API server", (until) => version(of, until))], signal);
  if (server.some(({ level }) => level === "failure")) return server;
  const made: { node?: Node } = {};
  const { target } = of;
  const first = [
    ...(target ? [bounded("CIDRs", (until) => cidrs(of, target, until))] : []),
    bounded("node", (until) => nodeOf(of, made, until)),
  ];
  const found = await examine(first.map(warnIfForbidden), signal);
  if (!made.node) return [...server, ...found];
  let container: ReturnType<typeof running> | undefined;
  const place = (until: AbortSignal) => (container ??= running(of, until));
  const checks = [
    bounded("lease", (until) => lease(of, until)),
    bounded("kubelet API", (until) => kubeletApi(of, until)),
    bounded("logs", async (until) => logs(of, await place(until), until)),
    bounded("exec", async (until) => exec(of, await place(until), until)),
  ].map(warnIfForbidden);
  return [...server, ...found, ...(await examine(checks, signal))];
}

/** Turns a refusal by the API server into a warning: the account lacks a permission, which is not a problem of the node. */
function warnIfForbidden({ name, look }: Check): Check {
  const unlessForbidden = async (signal: AbortSignal) =>
    (await ignoreCode(look(signal), "permission_denied")) ??
    warning("not checked, as this account lacks the permission: use an administrator's --kubeconfig");
  return { name, look: unlessForbidden };
}

async function nodeOf(
  { client, nodeName }: ClusterExamination,
  made: { node?: Node },
  signal: AbortSignal,
): Promise<CheckResult | readonly CheckResult[]> {
  const node = await ignoreNotFound(client.get<Node>(`/api/v1/nodes/${nodeName}`, { signal }));
  if (!node) return ok(`${nodeName} is not registered yet`);
  made.node = node;
  return conditions(node);
}

async function version({ client }: ClusterExamination, signal: AbortSignal): Promise<CheckResult> {
  const { gitVersion, minor } = await client.get<{ gitVersion: string; minor: string }>("/version", { signal });
  const tested = testedMinors.includes(Number.parseInt(minor, 10));
  const range = `1.${testedMinors[0]} to 1.${testedMinors.at(-1)}`;
  return tested ? ok(gitVersion) : warning(`${gitVersion} is not a tested version: graftlet is tested with ${range}`);
}

function conditions({ status }: Node): readonly CheckResult[] {
  const problems = (status?.conditions ?? []).filter(isProblem);
  const found = problems.map(({ type, status: holds, reason, message }): CheckResult => {
    const text = `${type} is ${holds}: ${message ?? ""}`;
    return type === "Ready" || type === "KubeletReachable" ? failure(text, reason) : warning(text, reason);
  });
  return found.length > 0 ? found : [ok("Ready, and no condition reports a problem")];
}

async function lease({ client, nodeName, clock }: ClusterExamination, signal: AbortSignal): Promise<CheckResult> {
  const path = `/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/${nodeName}`;
  const { spec } = await client.get<Lease>(path, { signal });
  const seconds = Math.round((clock.now() - Date.parse(spec?.renewTime ?? "")) / 1000);
  const most = spec?.leaseDurationSeconds ?? 40;
  return seconds <= most
    ? ok(`renewed ${seconds} s ago`)
    : failure(`renewed ${seconds} s ago: graftlet is not running, or cannot reach the API server`);
}

async function kubeletApi({ client, nodeName }: ClusterExamination, signal: AbortSignal): Promise<CheckResult> {
  await client.text(`/api/v1/nodes/${nodeName}/proxy/healthz`, { signal });
  return ok("the API server reaches it");
}

async function cidrs(
  { client, nodeName }: ClusterExamination,
  target: TargetNetworks,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  return compareRanges(await readRanges(client, nodeName, signal), target);
}

type RunningContainer = Omit<ContainerCommand, "argv">;

/** A running container of the node; placeholders have none. */
async function running(
  { client, nodeName }: ClusterExamination,
  signal: AbortSignal,
): Promise<RunningContainer | undefined> {
  const query = { fieldSelector: `spec.nodeName=${nodeName},status.phase=Running` };
  const { items } = await client.list<Pod>("/api/v1/pods", { query, signal });
  for (const { metadata, status } of items ?? []) {
    const container = status?.containerStatuses?.find(({ state }) => state?.running);
    if (container) return { namespace: metadata.namespace, pod: metadata.name, container: container.name };
  }
  return undefined;
}

async function logs(
  { client }: ClusterExamination,
  at: RunningContainer | undefined,
  signal: AbortSignal,
): Promise<CheckResult> {
  if (!at) return ok("no running pod with a log to read");
  const { namespace, pod, container } = at;
  const path = `/api/v1/namespaces/${namespace}/pods/${pod}/log`;
  await client.text(path, { query: { container, tailLines: 1 }, signal });
  return ok(`read the log of ${namespace}/${pod}`);
}

/** The runtime's error for a program that the image does not have: the runtime has looked for it in the container, so the connection
 *  works. */
const noProgram = /executable file not found|no such file or directory/;

async function exec(
  of: ClusterExamination,
  at: RunningContainer | undefined,
  signal: AbortSignal,
): Promise<CheckResult> {
  if (!at) return ok("no running pod to run a command in");
  const ended = await ignoreCode(of.exec({ ...at, argv: ["true"] }, signal), "unimplemented");
  if (!ended) return warning("not checked: the kubeconfig has a proxy-url");
  const place = `${at.namespace}/${at.pod}`;
  const { status, reason, message = "" } = ended;
  if (status === "Success" || reason === "NonZeroExitCode") return ok(`ran the command true in ${place}`);
  if (noProgram.test(message)) return ok(`reached the runtime of ${place}, whose image has no command true`);
  return failure(`cannot run the command true in ${place}: ${message}`);
}
