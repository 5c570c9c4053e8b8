import type { OptionsOf } from "../config/parse-result.ts";
import { kubeconfigFile } from "../api/kubeconfig.ts";
import { type ServiceAccountAccess, serviceAccount } from "../api/service-account.ts";
import type { NodeConfig } from "../config/node-config.ts";
import { type DeleteGraftedNodesDeps, deleteGraftedNodes } from "../fleet/deletion.ts";
import type { DeploymentName } from "../leave/deployment.ts";
import { type LeaveClient, type LeaveDeps, leave, retryingClient } from "../leave/leave.ts";
import { systemClock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import { openClient } from "./open-client.ts";
import { runRemoval } from "./remove.ts";
import { type CommandContext, confirm } from "./terminal.ts";

type LeaveOptions = OptionsOf<"leave"> & CommandContext;

/** Removes nodes from the cluster: their pods, their files on the targets, and their Node objects. Idempotent.
 *  @returns true if all of them have been removed.
 *  @throws CodedError, one sentence, if the API server's address or the service account cannot be read. */
export async function runLeave(options: LeaveOptions): Promise<boolean> {
  const { nodes, kubeconfig, terminal, timeoutMs, signal } = options;
  const account = kubeconfig === undefined ? serviceAccount(options.env) : undefined;
  const access = kubeconfig === undefined ? account : kubeconfigFile(kubeconfig);
  if (!access) throw new CodedError("invalid_argument", "--kubeconfig is not given: specify the path of a kubeconfig");
  const deployment = options.deployment && deploymentIn(options.deployment, account);
  if (!options.yes && !(await confirmLeave(options))) return false;
  const clock = systemClock();
  await using client = openClient(access, clock);
  if (options.fleet && account) {
    const namespace = account.namespace();
    const remaining = await deleteObjects({ ...options, client, clock, namespace, mayHave: options.fleet.mayHave });
    // Keep graftlet running: it still has to clean the machines of the remaining GraftedNodes.
    if (remaining.length > 0) return false;
  }
  const names = nodes.map(({ nodeName }) => nodeName);
  const clean = createCleaner(options);
  const stayed = await leave(
    { client, clock, nodes: names, deployment, timeoutMs, say: terminal.print, clean },
    signal,
  );
  for (const line of remainingSteps(stayed, deployment)) terminal.print(line);
  return stayed.length === 0;
}

interface DeleteObjectsOptions
  extends Pick<LeaveOptions, "timeoutMs" | "terminal" | "signal">,
    Pick<DeleteGraftedNodesDeps, "clock" | "namespace" | "mayHave"> {
  readonly client: LeaveClient;
}

/** Deletes the release's GraftedNodes. @returns the names of the GraftedNodes that remain, after printing what to do about them. */
async function deleteObjects(options: DeleteObjectsOptions): Promise<readonly string[]> {
  const { client, clock, terminal, timeoutMs, signal } = options;
  const say = terminal.print;
  // The timeout applies twice: once to the pods, once to the cleaning of the machines.
  const deps = { ...options, client: retryingClient(client, clock, say), timeoutMs: 2 * timeoutMs, say };
  const remaining = await deleteGraftedNodes(deps, signal);
  if (remaining.length > 0)
    say(
      `not removed yet: ${remaining.join(", ")}. Graftlet is still cleaning their machines; run this again. For a machine that will not come back: kubectl annotate gn NAME graftlet.dev/force-leave=REASON`,
    );
  return remaining;
}

function deploymentIn(
  { namespace, name }: NonNullable<LeaveOptions["deployment"]>,
  account: ServiceAccountAccess | undefined,
): DeploymentName {
  const own = namespace ?? account?.namespace();
  if (own !== undefined) return { namespace: own, name };
  throw new CodedError("invalid_argument", `--deployment is "${name}", which has no namespace: give NAMESPACE/NAME`);
}

async function confirmLeave({ nodes, terminal, signal }: LeaveOptions): Promise<boolean> {
  const names = nodes.map(({ nodeName }) => nodeName).join(", ") || "the machines of GraftedNodes";
  terminal.print(`leaving the cluster: ${names}. Their pods and Nodes will be deleted, and their machines cleaned.`);
  return await confirm(terminal, "Do this?", ["done", "do"], signal);
}

/** Cleans targets concurrently, but nodes of one machine sequentially: only the last node may remove resources that they share. */
function createCleaner({ nodes, providers, terminal, timeoutMs }: LeaveOptions): LeaveDeps["clean"] {
  const machines = new Map<string, ReturnType<typeof createSemaphore>>();
  return (nodeName, signal) => {
    const node = nodes.find((each) => each.nodeName === nodeName);
    if (!node) throw new CodedError("not_found", `node ${nodeName} is not one of the nodes to remove`);
    const machine = machineKey(node);
    const turns = machines.get(machine) ?? createSemaphore(1);
    machines.set(machine, turns);
    const print = (line: string) => terminal.print(`node ${nodeName}: ${line}`);
    const leaving = { longestGraceSeconds: Math.ceil(timeoutMs / 1000) };
    return turns(() => runRemoval({ node, yes: true, providers, terminal: { print }, leaving, signal }));
  };
}

/** Key of a node's machine: only providers of remote targets have a host. */
function machineKey({ providerConfig }: NodeConfig): string {
  const { host = "", port = "" } = (providerConfig ?? {}) as { readonly host?: unknown; readonly port?: unknown };
  return `${String(host)}:${String(port)}`;
}

/** Instructions for nodes that could not be removed. */
function remainingSteps(stayed: readonly string[], deployment: DeploymentName | undefined): readonly string[] {
  if (stayed.length === 0) return [];
  const lines = [`not removed: ${stayed.join(", ")}. Fix the problems above, and run this again.`];
  if (deployment)
    lines.push(
      `To skip them: uninstall with "helm uninstall --no-hooks". Their files stay on the machines until you run "graftlet remove" with their settings and keys; "kubectl delete node ${stayed.join(" ")}" deletes the Nodes.`,
      `To undo this: "helm rollback" to the last revision (or kubectl --namespace ${deployment.namespace} scale deployment ${deployment.name} --replicas=1), and kubectl uncordon ${stayed.join(" ")}`,
    );
  return lines;
}
