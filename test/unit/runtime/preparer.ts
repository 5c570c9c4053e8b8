import { join } from "node:path";
import { systemClock } from "../../../src/lib/clock.ts";
import { localHost } from "../../../providers/local/host.ts";
import { NamespaceMode, PodSandboxConfig, UserNamespace } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { Container, Pod } from "../../../src/objects.ts";
import type { MountedVolumes } from "../../../src/pipeline.ts";
import type { FileChange, HostFs } from "../../../src/seams/host.ts";
import type { VolumeImages } from "../../../src/runtime/images/puller.ts";
import type { CreatedFiles } from "../../../src/runtime/container-files.ts";
import { type PrepareDeps, createPreparer } from "../../../src/runtime/configure-container.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aContainer, aPod, observe } from "../../fakes/pods.ts";
import { fakeRuntime } from "../../fakes/runtime.ts";

export const { signal } = new AbortController();

const twoVolumes: MountedVolumes = new Map([
  ["data", { hostPath: "/vol/data", readOnly: false }],
  ["config", { hostPath: "/vol/config", readOnly: true }],
]);

type PreparerOptions = Partial<PrepareDeps> & {
  readonly mounted?: MountedVolumes;
  /** The user namespace of the containers' sandbox. */
  readonly sandboxUsers?: UserNamespace;
};

/** A preparer with a directory as target, one ConfigMap, one Service and two volumes. */
export function preparerIn(
  root: string,
  { mounted = twoVolumes, sandboxUsers, ...more }: PreparerOptions = {},
  settings: Partial<PrepareDeps["settings"]> = {},
) {
  const clock = fakeClock();
  const runtime = fakeRuntime({ clock });
  const events: string[] = [];
  const { fs } = localHost({ clock: systemClock() });
  const applied: FileChange[] = [];
  const apply: HostFs["apply"] = (changes, stop) => {
    applied.push(...changes);
    return fs.apply(changes, stop);
  };
  const deps: PrepareDeps = {
    settings: {
      nodeName: "node",
      rootDirectory: join(root, "kubelet"),
      podLogsDirectory: join(root, "logs"),
      logLinksDirectory: join(root, "links"),
      resolvConf: join(root, "resolv.conf"),
      clusterDNS: ["10.96.0.10"],
      clusterDomain: "cluster.local",
      seccompDefault: false,
      singleProcessOomKill: false,
      limitedSwap: false,
      stopSignals: true,
      ownerLabels: {},
      cpuCfsQuota: true,
      cpuCfsPeriodUs: 100_000,
      ...settings,
    },
    fs: { ...fs, apply },
    images: runtime,
    objects: {
      secret: (_namespace, name) => Promise.reject(new CodedError("not_found", `secret "${name}" not found`)),
      configMap: async (namespace, name) => {
        if (name !== "settings") throw new CodedError("not_found", `configmap "${name}" not found`);
        return { metadata: { name, namespace, uid: "u" }, data: { MODE: "fast" } };
      },
    },
    services: {
      list: () => [
        {
          metadata: { name: "kubernetes", namespace: "default", uid: "s" },
          spec: { clusterIP: "10.96.0.1", ports: [{ port: 443 }] },
        },
      ],
    },
    addresses: { hostIPs: () => ["192.0.2.1"] },
    volumes: {
      bindSubPaths: async (_pod, name, parts) =>
        new Map(parts.map(({ index, volume, subPath }) => [index, `/parts/${name}/${index}/${volume}:${subPath}`])),
    },
    managers: [],
    handlerFeatures: async () => undefined,
    userNamespace: async () => UserNamespace.fromPartial({ mode: NamespaceMode.NODE }),
    facts: async () => ({
      memoryBytes: 2 ** 32,
      swapBytes: 0,
      hugePageSizes: [],
      cgroupV2: false,
      swapController: false,
      thermalPaths: [],
      selinux: false,
    }),
    cgroups: async () => ({ driver: "cgroupfs", root: "", perQos: true }),
    allocatable: () => ({ cpu: "2", memory: "3Gi" }),
    events: { event: ({ kind }, type, reason, message) => void events.push(`${kind} ${type} ${reason}: ${message}`) },
    clock,
    log: silentLog(),
    ...more,
  };
  const preparer = createPreparer(deps);
  const configure = async (
    pod: Pod,
    container: Container,
    ips: readonly string[] = ["10.0.0.2"],
    observed = observe([], []),
    { volumes = new Map(), created }: { readonly volumes?: VolumeImages; readonly created?: CreatedFiles } = {},
  ) => {
    const sandbox = {
      id: "sandbox",
      config: PodSandboxConfig.fromPartial({
        logDirectory: join(root, "logs", "default_p_uid-1"),
        ...(sandboxUsers && { linux: { securityContext: { namespaceOptions: { usernsOptions: sandboxUsers } } } }),
      }),
      ips: Promise.resolve(ips),
    };
    const start = { pod, container, observed, sandbox, mounted, created };
    const image = { imageRef: "sha256:abc", volumes };
    const { config, hostsWritten } = await preparer.configure(start, image, 2, signal);
    await hostsWritten;
    return config;
  };
  return { preparer, configure, events, applied };
}

/** A pod of one container. */
export function podOf(
  more: Partial<Container>,
  spec: Partial<Pod["spec"]> = {},
  metadata: Partial<Pod["metadata"]> = {},
): [Pod, Container] {
  const container = aContainer("c", more);
  return [aPod({ containers: [container], ...spec }, metadata), container];
}
