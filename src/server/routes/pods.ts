import { PodSandboxState } from "../../gen/cri.ts";
import type { Pod } from "../../objects.ts";
import type { PodCache, PodStore, RuntimePod, StatusReader } from "../../pipeline.ts";
import type { KubeletServerDeps } from "../ports.ts";
import { type Handler, sendJson } from "../responses.ts";
import { isRunning } from "../../pod/runs.ts";

/** /pods: the node's desired pods, with its current statuses.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/ */
export function pods(deps: Pick<KubeletServerDeps, "desired" | "status">): Handler {
  return (_request, response) => sendJson(response, podList(servedPods(deps.desired, deps.status)));
}

/** Pods with the node's current statuses. */
export function servedPods(pods: Pick<PodStore, "list">, statuses: StatusReader): readonly Pod[] {
  return pods.list().map((pod) => ({ ...pod, status: statuses.get(pod.metadata.uid) ?? pod.status ?? {} }));
}

/** /runningpods/: the runtime's pods, with names and images only. */
export function runningPodsRoute(runtimePods: PodCache): Handler {
  return (_request, response) => sendJson(response, podList(runtimePods.list().flatMap(runningPod)));
}

function podList(items: readonly object[]): object {
  return { kind: "PodList", apiVersion: "v1", metadata: {}, items };
}

function runningPod(pod: RuntimePod): object[] {
  const running = pod.containers.filter(isRunning);
  const ready = pod.sandboxes.some(({ state }) => state === PodSandboxState.SANDBOX_READY);
  if (running.length === 0 && !ready) return [];
  const containers = running.map(({ metadata, image }) => ({
    name: metadata?.name ?? "",
    image: image?.image ?? "",
    resources: {},
  }));
  return [{ metadata: { name: pod.name, namespace: pod.namespace, uid: pod.uid }, spec: { containers }, status: {} }];
}
