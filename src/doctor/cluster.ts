import type { ApiClient } from "../api/client.ts";
import type { Command, Ended } from "../api/exec.ts";
import { isProblem } from "../api/node-conditions.ts";
import type { Clock } from "../lib/clock.ts";
import { unlessCode, unlessGone } from "../lib/errors.ts";
import type { Lease, Node, Pod } from "../objects.ts";
import { type TargetNetworks, compareRanges, readRanges } from "./cidrs.ts";
import { type Check, type Finding, type Verdict, examine, failure, ok, warning } from "./findings.ts";

export interface ClusterExamination {
  readonly client: ApiClient;
  readonly nodeName: string;
  /** Runs a command in a container through the API server. @throws CodedError unimplemented where that is not served. */
  readonly exec: (command: Command, signal: AbortSignal) => Promise<Ended>;
  /** Undefined where the target does not tell. */
  readonly target: TargetNetworks | undefined;
  readonly clock: Clock;
}

/** Versions of the API server that graftlet is tested with. */
const testedMinors = [34, 35, 36];
const checkMs = 15_000;

/** Looks at the cluster as a node sees it, and at the node as the cluster sees it. It writes nothing. */
export async function examineCluster(of: ClusterExamination, signal: AbortSignal): Promise<readonly Finding[]> {
  const bounded = (name: string, look: Check["look"]): Check => ({
    name,
    look: (until) => look(of.clock.within(checkMs, until)),
  });
  const server = await examine([bounded("API server", (until) => version(of, until))], signal);
  if (server.some(({ level }) => level === "failure")) return server;
  const made: { node?: Node } = {};
  const { target } = of;
  const first = [
    ...(target ? [bounded("CIDRs", (until) => cidrs(of, target, until))] : []),
    bounded("node", (until) => nodeOf(of, made, until)),
  ];
  const found = await examine(first.map(whereAllowed), signal);
  if (!made.node) return [...server, ...found];
  let container: ReturnType<typeof running> | undefined;
  const place = (until: AbortSignal) => (container ??= running(of, until));
  const checks = [
    bounded("lease", (until) => lease(of, until)),
    bounded("kubelet API", (until) => kubeletApi(of, until)),
    bounded("logs", async (until) => logs(of, await place(until), until)),
    bounded("exec", async (until) => exec(of, await place(until), until)),
  ].map(whereAllowed);
  return [...server, ...found, ...(await examine(checks, signal))];
}

/** A check whose refusal by the API server is a warning: the account lacks a right, which is not wrong. */
function whereAllowed({ name, look }: Check): Check {
  const unlessForbidden = async (signal: AbortSignal) =>
    (await unlessCode(look(signal), "permission_denied")) ??
    warning("not looked at, since this account may not: give an administrator's --kubeconfig");
  return { name, look: unlessForbidden };
}

async function nodeOf(
  { client, nodeName }: ClusterExamination,
  made: { node?: Node },
  signal: AbortSignal,
): Promise<Verdict | readonly Verdict[]> {
  const node = await unlessGone(client.get<Node>(`/api/v1/nodes/${nodeName}`, { signal }));
  if (!node) return ok(`${nodeName} is not registered yet`);
  made.node = node;
  return conditions(node);
}

async function version({ client }: ClusterExamination, signal: AbortSignal): Promise<Verdict> {
  const { gitVersion, minor } = await client.get<{ gitVersion: string; minor: string }>("/version", { signal });
  const tested = testedMinors.includes(Number.parseInt(minor, 10));
  const range = `1.${testedMinors[0]} to 1.${testedMinors.at(-1)}`;
  return tested ? ok(gitVersion) : warning(`${gitVersion}, with which graftlet is not tested: it is with ${range}`);
}

function conditions({ status }: Node): readonly Verdict[] {
  const problems = (status?.conditions ?? []).filter(isProblem);
  const found = problems.map(({ type, status: holds, reason, message }): Verdict => {
    const text = `${type} is ${holds}: ${message ?? ""}`;
    return type === "Ready" || type === "KubeletReachable" ? failure(text, reason) : warning(text, reason);
  });
  return found.length > 0 ? found : [ok("Ready, and no condition tells of trouble")];
}

async function lease({ client, nodeName, clock }: ClusterExamination, signal: AbortSignal): Promise<Verdict> {
  const path = `/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/${nodeName}`;
  const { spec } = await client.get<Lease>(path, { signal });
  const seconds = Math.round((clock.now() - Date.parse(spec?.renewTime ?? "")) / 1000);
  const most = spec?.leaseDurationSeconds ?? 40;
  return seconds <= most
    ? ok(`renewed ${seconds} s ago`)
    : failure(`renewed ${seconds} s ago: graftlet does not run, or does not reach the API server`);
}

async function kubeletApi({ client, nodeName }: ClusterExamination, signal: AbortSignal): Promise<Verdict> {
  await client.text(`/api/v1/nodes/${nodeName}/proxy/healthz`, { signal });
  return ok("the API server reaches it");
}

async function cidrs(
  { client, nodeName }: ClusterExamination,
  target: TargetNetworks,
  signal: AbortSignal,
): Promise<readonly Verdict[]> {
  return compareRanges(await readRanges(client, nodeName, signal), target);
}

type Running = Omit<Command, "argv">;

/** A container that runs on the node; placeholders have none. */
async function running({ client, nodeName }: ClusterExamination, signal: AbortSignal): Promise<Running | undefined> {
  const query = { fieldSelector: `spec.nodeName=${nodeName},status.phase=Running` };
  const { items } = await client.list<Pod>("/api/v1/pods", { query, signal });
  for (const { metadata, status } of items ?? []) {
    const container = status?.containerStatuses?.find(({ state }) => state?.running);
    if (container) return { namespace: metadata.namespace, pod: metadata.name, container: container.name };
  }
  return undefined;
}

async function logs({ client }: ClusterExamination, at: Running | undefined, signal: AbortSignal): Promise<Verdict> {
  if (!at) return ok("no pod runs there whose log could be read");
  const { namespace, pod, container } = at;
  const path = `/api/v1/namespaces/${namespace}/pods/${pod}/log`;
  await client.text(path, { query: { container, tailLines: 1 }, signal });
  return ok(`that of ${namespace}/${pod} was read`);
}

/** A runtime's word for a program that an image does not have: it has looked for it in the container, so the way there works. */
const noProgram = /executable file not found|no such file or directory/;

async function exec(of: ClusterExamination, at: Running | undefined, signal: AbortSignal): Promise<Verdict> {
  if (!at) return ok("no pod runs there in which a command could be run");
  const ended = await unlessCode(of.exec({ ...at, argv: ["true"] }, signal), "unimplemented");
  if (!ended) return warning("not looked at: the kubeconfig has a proxy-url");
  const place = `${at.namespace}/${at.pod}`;
  const { status, reason, message = "" } = ended;
  if (status === "Success" || reason === "NonZeroExitCode") return ok(`the command true ran in ${place}`);
  if (noProgram.test(message)) return ok(`the runtime looked for the command true in ${place}, whose image has none`);
  return failure(`the command true did not run in ${place}: ${message}`);
}
