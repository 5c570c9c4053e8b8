import type { Container, PodSpec, Probe, Volume } from "../objects.ts";
import { isHugePages, isPodLevelResource, podLimits, podRequests, type ResourceList } from "../pod/resources.ts";

/** A pod's spec with the API server's defaults: a pod from a file or a URL does not pass through the API server, and its runtime
 *  configuration must not depend on its source.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ */
export function withDefaults(spec: PodSpec): PodSpec {
  const hostNetwork = spec.hostNetwork === true;
  const filled = (container: Container) => containerDefaults(container, hostNetwork);
  return withPodLevelRequests({
    restartPolicy: "Always",
    dnsPolicy: "ClusterFirst",
    terminationGracePeriodSeconds: 30,
    schedulerName: "default-scheduler",
    enableServiceLinks: true,
    ...spec,
    securityContext: spec.securityContext ?? {},
    containers: (spec.containers ?? []).map(filled),
    ...(spec.initContainers && { initContainers: spec.initContainers.map(filled) }),
    ...(spec.volumes && { volumes: spec.volumes.map(volumeDefaults) }),
    ...(spec.tolerations && { tolerations: [...spec.tolerations] }),
  });
}

/** Sets pod-level amounts that follow from others: limits of huge pages from the containers' limits; requests from the containers'
 *  requests, otherwise from the pod's limits. A pod without pod-level amounts gets none.
 *  @param spec with its containers' defaults. */
function withPodLevelRequests(spec: PodSpec): PodSpec {
  if (!spec.resources) return spec;
  const { limits: ownLimits = {}, requests: own = {} } = spec.resources;
  if (Object.keys(ownLimits).length + Object.keys(own).length === 0) return spec;
  const { resources: _, ...parts } = spec;
  const containers = { metadata: { name: "", namespace: "", uid: "" }, spec: parts };
  const pages = chosen(podLimits(containers, { overhead: false }), (name) => isHugePages(name) && !(name in own));
  const limits = { ...pages, ...ownLimits };
  if (Object.keys(limits).length === 0) return spec;
  const requested = chosen(
    podRequests(containers, { overhead: false }),
    (name) => isPodLevelResource(name) && !isHugePages(name),
  );
  const given = chosen(limits, isPodLevelResource);
  return { ...spec, resources: { ...spec.resources, limits, requests: { ...given, ...requested, ...own } } };
}

function chosen(amounts: ResourceList, counts: (name: string) => boolean): ResourceList {
  return Object.fromEntries(Object.entries(amounts).filter(([name]) => counts(name)));
}

function containerDefaults(container: Container, hostNetwork: boolean): Container {
  const { ports, env, resources, livenessProbe, readinessProbe, startupProbe, lifecycle } = container;
  return {
    terminationMessagePath: "/dev/termination-log",
    terminationMessagePolicy: "File",
    imagePullPolicy: pullPolicy(container.image ?? ""),
    ...container,
    resources: withRequests(resources ?? {}),
    ...(ports && {
      ports: ports.map((port) => ({
        protocol: "TCP",
        ...(hostNetwork && { hostPort: port.containerPort }),
        ...port,
      })),
    }),
    ...(env && {
      env: env.map((one) => ({ ...one, ...(one.valueFrom && { valueFrom: fieldVersion(one.valueFrom) }) })),
    }),
    ...(livenessProbe && { livenessProbe: probeDefaults(livenessProbe) }),
    ...(readinessProbe && { readinessProbe: probeDefaults(readinessProbe) }),
    ...(startupProbe && { startupProbe: probeDefaults(startupProbe) }),
    ...(lifecycle && {
      lifecycle: {
        ...lifecycle,
        ...(lifecycle.postStart && { postStart: handlerDefaults(lifecycle.postStart) }),
        ...(lifecycle.preStop && { preStop: handlerDefaults(lifecycle.preStop) }),
      },
    }),
  };
}

/** An image without a digest and with the tag `latest`, or without a tag, may change under its name. */
function pullPolicy(image: string): string {
  if (image.includes("@")) return "IfNotPresent";
  const tag = /:([^:/]+)$/.exec(image)?.[1] ?? "latest";
  return tag === "latest" ? "Always" : "IfNotPresent";
}

/** A limit without a request also sets the request. */
function withRequests(resources: NonNullable<Container["resources"]>): NonNullable<Container["resources"]> {
  if (!resources.limits) return resources;
  return { ...resources, requests: { ...resources.limits, ...resources.requests } };
}

function probeDefaults(probe: Probe): Probe {
  const times = { timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3 };
  const { grpc } = probe;
  return { ...times, ...handlerDefaults(probe), ...(grpc && { grpc: { service: "", ...grpc } }) };
}

function handlerDefaults<T extends Pick<Probe, "httpGet">>(handler: T): T {
  const { httpGet } = handler;
  return httpGet ? { ...handler, httpGet: { path: "/", scheme: "HTTP", ...httpGet } } : handler;
}

function fieldVersion<T extends { fieldRef?: { apiVersion?: string; fieldPath: string } }>(from: T): T {
  return from.fieldRef ? { ...from, fieldRef: { apiVersion: "v1", ...from.fieldRef } } : from;
}

const readableByAll = 0o644;

function volumeDefaults(volume: Volume): Volume {
  const { hostPath, downwardAPI, projected } = volume;
  if (volumeSources(volume).length === 0) return { ...volume, emptyDir: {} };
  return {
    ...volume,
    ...(hostPath && { hostPath: { type: "", ...hostPath } }),
    ...(downwardAPI && {
      downwardAPI: { defaultMode: readableByAll, ...downwardAPI, items: (downwardAPI.items ?? []).map(fieldVersion) },
    }),
    ...(projected && {
      projected: {
        defaultMode: readableByAll,
        ...projected,
        sources: (projected.sources ?? []).map((source) => ({
          ...source,
          ...(source.downwardAPI && { downwardAPI: { items: (source.downwardAPI.items ?? []).map(fieldVersion) } }),
        })),
      },
    }),
  };
}

/** Kinds of a volume's source in the spec, by the API's field names: exactly one in a valid pod. */
export function volumeSources(volume: Volume): readonly string[] {
  return Object.keys(volume).filter((field) => field !== "name");
}
