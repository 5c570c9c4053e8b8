import type { ApiClient } from "../api/client.ts";
import type { Clock } from "../lib/clock.ts";
import { hasCode } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";
import type { Pod } from "../objects.ts";
import { isTerminal } from "../pod/phase.ts";

export interface DeploymentName {
  readonly namespace: string;
  readonly name: string;
}

export interface DeploymentDeps {
  readonly client: Pick<ApiClient, "get" | "list" | "patch">;
  readonly clock: Clock;
  readonly deployment: DeploymentName;
  /** Timeout for the Deployment's Pods to terminate, milliseconds. */
  readonly timeoutMs: number;
  readonly say: (line: string) => void;
}

/** @see https://kubernetes.io/docs/reference/kubernetes-api/autoscaling/scale-v1/ */
interface Scale {
  readonly spec?: { readonly replicas?: number };
  readonly status?: { readonly selector?: string };
}

const pollIntervalMs = 1_000;

/** Stops graftlet's Deployment: scales it to 0 and waits until its Pods are gone. Pods that exceed the timeout are reported; the
 *  locks on the targets show whether they still run. */
export async function stopDeployment(deps: DeploymentDeps, signal: AbortSignal): Promise<void> {
  const { client, clock, timeoutMs, say } = deps;
  const { namespace, name } = deps.deployment;
  const title = `Deployment ${namespace}/${name}`;
  const path = `/apis/apps/v1/namespaces/${namespace}/deployments/${name}/scale`;
  let scale: Scale;
  try {
    scale = await client.get<Scale>(path, { signal });
    if (scale.spec?.replicas !== 0)
      scale = await client.patch<Scale>(path, { type: "merge", body: { spec: { replicas: 0 } } }, { signal });
  } catch (error) {
    if (hasCode(error, "not_found")) return say(`${title} no longer exists`);
    throw error;
  }
  const deadline = clock.monotonic() + timeoutMs;
  for (;;) {
    const pods = await runningPodNames(deps, scale.status?.selector ?? "", signal);
    if (pods.length === 0) return say(`scaled ${title} to 0; all of its Pods have terminated`);
    if (clock.monotonic() >= deadline)
      return say(`scaled ${title} to 0, but after ${goDuration(timeoutMs)} Pods remain: ${pods.join(", ")}`);
    await clock.sleep(pollIntervalMs, signal);
  }
}

/** Names of Pods that may still be running. */
async function runningPodNames(
  { client, deployment }: DeploymentDeps,
  labelSelector: string,
  signal: AbortSignal,
): Promise<string[]> {
  if (labelSelector === "") return [];
  const { items } = await client.list<Pod>(`/api/v1/namespaces/${deployment.namespace}/pods`, {
    query: { labelSelector },
    signal,
  });
  return (items ?? []).filter(({ status }) => !isTerminal(status?.phase)).map(({ metadata }) => metadata.name);
}
