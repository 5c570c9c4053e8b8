import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import type { Container, ContainerStatus, CoreEvent, Node, Pod, PodCondition, PodSpec } from "../../src/objects.ts";
import { hugepagesOf } from "../../src/pod/resources.ts";
import { type Api, openApi, Refused } from "./api.ts";
import { outerPid } from "../machines/enter.ts";
import { hasGuest } from "../machines/guest-way.ts";
import type { Cluster } from "./cluster.ts";
import { isGuest } from "../matrix.ts";
import { hasDocker, runtimeDaemons } from "./runtime-daemon.ts";
import { patience, waitFor } from "./wait.ts";

/** Longest wait for output of a container that has ended, milliseconds. */
const lateOutputMs = 2_000;

export const images = {
  busybox: "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
  agnhost: "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
  nonroot: "registry.k8s.io/e2e-test-images/nonroot:1.5",
} as const;

/** A container as a test writes it: what it leaves out is filled in, what it gives as undefined stays away. */
export type ContainerDraft = { readonly [Field in keyof Container]?: Container[Field] | undefined };

/** A pod's spec as a test writes it. */
export type SpecDraft = Partial<Omit<PodSpec, "containers" | "initContainers">> & {
  readonly containers?: readonly ContainerDraft[];
  readonly initContainers?: readonly ContainerDraft[];
};

/** The pods of one namespace, seen from outside: every version that the API server stored is remembered. */
export interface Pods extends AsyncDisposable {
  readonly api: Api;
  readonly namespace: string;
  /** Creates a pod. Containers get a name, busybox and a short grace period where they have none. */
  create(name: string, spec: SpecDraft, metadata?: object): Promise<Pod>;
  /** A strategic merge patch. */
  patch(name: string, patch: object): Promise<Pod>;
  remove(name: string, gracePeriodSeconds?: number): Promise<void>;
  /** All versions of the pod of this name that the watch has shown, oldest first. */
  history(name: string): readonly Pod[];
  /** The pod's newest version, once it satisfies the condition. Throws with all that is known of the pod after the deadline. */
  until(name: string, what: string, holds: (pod: Pod) => boolean, timeoutMs?: number): Promise<Pod>;
  ready(name: string): Promise<Pod>;
  /** Resolves when the object is gone, with its last version. What `atOnce` finds is looked up in the same turn as the news. */
  gone<T = undefined>(name: string, atOnce?: (last: Pod) => T): Promise<{ last: Pod; found: T }>;
  /** Waits until what this version of a pod asks for is in force, as its conditions say, and returns the pod. */
  resized(asked: Pod): Promise<Pod>;
  log(name: string, query?: string): Promise<string>;
  /** Waits until a pod's log equals or matches `expected`: a running container may not have written anything yet. @returns the log. */
  logged(name: string, expected: string | RegExp, query?: string): Promise<string>;
  /** Waits for a container to end and returns its log. */
  outputOf(name: string, container?: string): Promise<string>;
  /** Runs a pod of one container, never restarted unless the spec says so, to its end, and returns the container's log. */
  output(name: string, container: ContainerDraft, spec?: SpecDraft, metadata?: object): Promise<string>;
  events(name: string): Promise<readonly CoreEvent[]>;
  /** Waits for an event about the pod. */
  event(name: string, reason: string, message?: string | RegExp, timeoutMs?: number): Promise<CoreEvent>;
}

interface Watcher {
  heard(type: string, pod: Pod): void;
}

/** Opens the pods of a namespace and begins to watch them. The namespace is made when it is not there. */
export async function openPods(cluster: Cluster, namespace = "default"): Promise<Pods> {
  const api = openApi(cluster.layout);
  const base = `/api/v1/namespaces/${namespace}`;
  if (namespace !== "default") await api.create("/api/v1/namespaces", { metadata: { name: namespace } });
  await waitFor("the namespace's service account", () => api.get(`${base}/serviceaccounts/default`).then(() => true));
  const versions = new Map<string, Pod[]>();
  const watchers = new Set<Watcher>();
  const stop = new AbortController();
  const heard = (type: string, pod: Pod): void => {
    const { name, resourceVersion } = pod.metadata;
    const known = versions.get(name) ?? [];
    if (type === "ERROR" || (type === "ADDED" && known.at(-1)?.metadata.resourceVersion === resourceVersion)) return;
    versions.set(name, known[0]?.metadata.uid === pod.metadata.uid ? [...known, pod] : [pod]);
    for (const watcher of watchers) watcher.heard(type, pod);
  };
  // A watch of a young API server ends when its cache is not filled in time.
  const watching = (async () => {
    while (!stop.signal.aborted)
      await api.watch<Pod>(`${base}/pods?watch=true`, heard, stop.signal).catch((error: unknown) => {
        if (!stop.signal.aborted) throw error;
      });
  })();

  const newest = (name: string): Pod | undefined => versions.get(name)?.at(-1);
  const events = async (name: string): Promise<readonly CoreEvent[]> => {
    const uid = newest(name)?.metadata.uid;
    const { items } = await api.get<{ items: CoreEvent[] }>(`${base}/events?fieldSelector=involvedObject.name=${name}`);
    return items.filter(({ involvedObject }) => uid === undefined || involvedObject.uid === uid);
  };
  const explain = async (name: string): Promise<string> => {
    const pod = newest(name);
    const told = (await events(name)).map(
      ({ type, reason, message, count }) => `  ${type} ${reason} x${count ?? 1}: ${message}`,
    );
    return `${name} is ${JSON.stringify(pod?.status ?? "not there", undefined, 1)}\nevents:\n${told.join("\n")}`;
  };

  const pods: Pods = {
    api,
    namespace,
    events,
    create: (name, spec, metadata = {}) =>
      api.create<Pod>(`${base}/pods`, {
        apiVersion: "v1",
        kind: "Pod",
        metadata: { name, ...metadata },
        spec: completed(spec),
      }),
    patch: (name, patch) => api.patch<Pod>(`${base}/pods/${name}`, patch),
    remove: (name, gracePeriodSeconds) =>
      api.remove(`${base}/pods/${name}`, gracePeriodSeconds === undefined ? {} : { gracePeriodSeconds }),
    history: (name) => versions.get(name) ?? [],
    until(name, what, holds, givenMs = 60_000) {
      const timeoutMs = patience(givenMs);
      const { promise, resolve, reject } = Promise.withResolvers<Pod>();
      const look = (pod: Pod | undefined): void => {
        if (!pod || pod.metadata.name !== name) return;
        try {
          if (holds(pod)) resolve(pod);
        } catch (error) {
          reject(error);
        }
      };
      const watcher = { heard: (_: string, pod: Pod) => look(pod) };
      const timer = setTimeout(
        () =>
          void explain(name).then(
            (why) => reject(new Error(`waited ${timeoutMs / 1000} s in vain for ${name}: ${what}\n${why}`)),
            reject,
          ),
        timeoutMs,
      );
      watchers.add(watcher);
      look(newest(name));
      return promise.finally(() => {
        clearTimeout(timer);
        watchers.delete(watcher);
      });
    },
    ready: (name) => pods.until(name, "to be Ready", (pod) => condition(pod, "Ready")?.status === "True"),
    gone<T>(name: string, atOnce?: (last: Pod) => T) {
      const timeoutMs = patience(60_000);
      const { promise, resolve, reject } = Promise.withResolvers<{ last: Pod; found: T }>();
      const watcher = {
        heard: (type: string, pod: Pod) => {
          if (type === "DELETED" && pod.metadata.name === name) resolve({ last: pod, found: atOnce?.(pod) as T });
        },
      };
      const timer = setTimeout(
        () =>
          void explain(name).then(
            (why) => reject(new Error(`waited ${timeoutMs / 1000} s in vain for the end of ${name}\n${why}`)),
            reject,
          ),
        timeoutMs,
      );
      watchers.add(watcher);
      return promise.finally(() => {
        clearTimeout(timer);
        watchers.delete(watcher);
      });
    },
    resized: ({ metadata: { name, generation = 0 } }) =>
      pods.until(
        name,
        "to be resized",
        (pod) =>
          (pod.status?.observedGeneration ?? 0) >= generation &&
          !condition(pod, "PodResizePending") &&
          !condition(pod, "PodResizeInProgress") &&
          condition(pod, "Ready")?.status === "True",
      ),
    log: (name, query = "") => api.text(`${base}/pods/${name}/log?${query}`),
    async logged(name, expected, query) {
      const fits = (text: string) => (typeof expected === "string" ? text === expected : expected.test(text));
      const read = async () => {
        const text = await pods.log(name, query);
        return fits(text) ? { text } : undefined;
      };
      const explain = () => pods.log(name, query);
      return (await waitFor(`${name} to log ${String(expected)}`, read, { explain })).text;
    },
    async outputOf(name, container = "main") {
      await pods.until(name, `${container} to end`, (pod) => statusOf(pod, container)?.state?.terminated !== undefined);
      // Not all of it may be in the file as containerd tells of the end.
      const patience = Date.now() + lateOutputMs;
      for (;;) {
        const text = await pods.log(name, `container=${container}`);
        if (text !== "" || Date.now() > patience) return text;
        await pause(100);
      }
    },
    async output(name, container, spec = {}, metadata = {}) {
      await pods.create(name, { restartPolicy: "Never", ...spec, containers: [container] }, metadata);
      return pods.outputOf(name);
    },
    event: (name, reason, message = /^/, timeoutMs = 60_000) =>
      waitFor(
        `an event ${reason} ${String(message)} of ${name}`,
        async () =>
          (await events(name)).find(
            (event) =>
              event.reason === reason &&
              (typeof message === "string" ? event.message === message : message.test(event.message ?? "")),
          ),
        { timeoutMs, everyMs: 250, explain: () => explain(name) },
      ),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await watching;
      api[Symbol.dispose]();
    },
  };
  return pods;
}

function completed(spec: SpecDraft): object {
  const fill = (container: ContainerDraft, index: number): object => ({
    name: index === 0 ? "main" : `extra-${index}`,
    image: images.busybox,
    command: ["sleep", "infinity"],
    ...container,
  });
  const { containers = [{}], initContainers } = spec;
  return {
    terminationGracePeriodSeconds: 1,
    ...spec,
    containers: containers.map(fill),
    ...(initContainers && {
      initContainers: initContainers.map((container, index) => ({
        ...fill(container, index),
        name: container.name ?? `init-${index}`,
      })),
    }),
  };
}

/** A container that runs a shell script. */
export function shell(script: string, more: ContainerDraft = {}): ContainerDraft {
  return { command: ["sh", "-c", script], ...more };
}

/** The status of a main or init container. */
export function statusOf(pod: Pod, name = "main"): ContainerStatus | undefined {
  const { containerStatuses = [], initContainerStatuses = [] } = pod.status ?? {};
  return [...initContainerStatuses, ...containerStatuses].find((status) => status.name === name);
}

export function condition(pod: Pod, type: string): PodCondition | undefined {
  return pod.status?.conditions?.find((one) => one.type === type);
}

/** Holds that the kernel has killed a container for its memory. A Docker Engine that hears of the end before the kill tells the exit code
 *  alone: docs/deviations.md. */
export function assertOutOfMemory({ provider }: Pick<Cluster, "provider">, pod: Pod): void {
  const { reason, exitCode } = statusOf(pod)?.state?.terminated ?? {};
  // On cgroup v2 containerd hears of the kill beside the container's end, too: on a busy guest it may come after.
  const mayBeLate = hasDocker(provider) || isGuest(provider);
  const told = mayBeLate && reason === "Error" ? "OOMKilled" : reason;
  assert.deepEqual([told, exitCode], ["OOMKilled", 137], pod.metadata.name);
}

/** Has a process outgrow its container's memory beside another one, on cgroup v2: the kernel ends all of the container, as a kubelet asks it to.
 *  On Docker, which has no such setting, it is the one process. */
export async function outgrowMemory(cluster: Cluster, pods: Pods, name: string): Promise<Pod> {
  const script = "(tail /dev/zero; echo survived) & wait; exec sleep 3600";
  const resources = { limits: { memory: "32Mi" } };
  await pods.create(name, { restartPolicy: "Never", containers: [shell(script, { resources })] });
  if (hasDocker(cluster.provider)) {
    await pods.logged(name, /survived/);
    return pods.ready(name);
  }
  const pod = await pods.until(name, "to be killed", (one) => statusOf(one)?.state?.terminated !== undefined);
  assertOutOfMemory(cluster, pod);
  assert.doesNotMatch(await pods.log(name), /survived/);
  return pod;
}

/** The bare ID of a container that has been made. */
export function containerId(pod: Pod, name = "main"): string {
  const id = statusOf(pod, name)?.containerID?.replace(/^\w+:\/\//, "");
  if (!id) throw new Error(`container ${name} of ${pod.metadata.name} has no ID`);
  return id;
}

/** The number of a running container's first process: its target's where that is a guest, else this machine's. */
export function firstProcess(cluster: Cluster, pod: Pod, name = "main"): number {
  const id = containerId(pod, name);
  const pid = outerPid(cluster.layout, Number(readFileSync(firstProcessFile(cluster, id), "utf8")));
  if (pid === undefined) throw new Error(`container ${id} has no process`);
  return pid;
}

/** Where containerd's shim, Docker's too, writes down the number of a container's first process; gone with the process. */
export function firstProcessFile(cluster: Cluster, id: string): string {
  return targetPath(cluster, join(runtimeDaemons[cluster.provider].tasks(cluster.layout), id, "init.pid"));
}

/** A path below the cluster's folder as the target has it: the same here, unless that is a guest. */
export function targetPath({ layout, root }: Cluster, path: string): string {
  return hasGuest(layout) ? join(root, path) : path;
}

/** Whether an error is the API server's word that there is no such object. */
export function isNotFound(error: unknown): boolean {
  return error instanceof Refused && error.status === 404;
}

/** Bytes of huge pages that a node has, which are not for pods that ask for memory. */
export function hugePageBytes({ status }: Node): number {
  return Object.values(hugepagesOf(status?.capacity ?? {})).reduce((sum, bytes) => sum + bytes, 0);
}
