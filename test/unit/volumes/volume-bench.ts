import assert from "node:assert/strict";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret, Volume } from "../../../src/objects.ts";
import type { Token, TokenRequest } from "../../../src/api/tokens.ts";
import type { PodCertificateCredentials, TrustAnchorSelection } from "../../../src/volumes/ports.ts";
import { createVolumes } from "../../../src/volumes/volumes.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";
import { fakeStorage } from "../../fakes/storage.ts";
import { type TestPod, aContainer, aPod } from "../../fakes/pods.ts";
import { fakeTargetGate } from "../../fakes/target-gate.ts";
import { unmeasured } from "../../fakes/measures.ts";

export const rootDir = "/var/lib/kubelet";

/** Directory of a volume of the bench's pod. */
export const directoryOf = (plugin: string, name = "v") =>
  `${rootDir}/pods/uid-1/volumes/kubernetes.io~${plugin}/${name}`;

/** A pod whose container mounts all of these volumes. */
export function podWith(
  volumes: readonly Volume[],
  spec: Partial<TestPod["spec"]> = {},
  metadata: Partial<TestPod["metadata"]> = {},
): TestPod {
  const container = aContainer("c", { volumeMounts: volumes.map(({ name }) => ({ name, mountPath: `/mnt/${name}` })) });
  return aPod({ volumes: [...volumes], containers: [container], ...spec }, metadata);
}

/** Applies a strategic merge patch to a claim's status, as far as graftlet uses it. */
function merged(status: NonNullable<PersistentVolumeClaim["status"]>, patch: object): typeof status {
  const { status: change } = patch as { status: Record<string, unknown> };
  const { conditions, allocatedResourceStatuses, ...rest } = change;
  type Condition = NonNullable<(typeof status)["conditions"]>[number];
  const changed = (conditions ?? []) as readonly (Condition & { readonly $patch?: string })[];
  const statuses = { ...status.allocatedResourceStatuses, ...(allocatedResourceStatuses as Record<string, string>) };
  return {
    ...status,
    ...rest,
    allocatedResourceStatuses: Object.fromEntries(Object.entries(statuses).filter(([, value]) => value !== null)),
    conditions: [
      ...(status.conditions ?? []).filter(({ type }) => changed.every((one) => one.type !== type)),
      ...changed.filter(({ $patch }) => $patch === undefined),
    ],
  };
}

/** The volumes stage on an in-memory machine, with objects that tests can change. */
export function volumeBench() {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const configMaps = new Map<string, ConfigMap>();
  const secrets = new Map<string, Secret>();
  const claims = new Map<string, PersistentVolumeClaim>();
  const volumes = new Map<string, PersistentVolume>();
  const events: string[] = [];
  const requests: TokenRequest[] = [];
  const tornDown: string[] = [];
  let tokens = 0;
  const read = <T>(from: ReadonlyMap<string, T>, kind: string, name: string): T => {
    const found = from.get(name);
    if (!found) throw new CodedError("not_found", `${kind} "${name}" not found`);
    return found;
  };
  const identity = (name: string) => ({ name, namespace: "default", uid: name });
  const issue = async (request: TokenRequest): Promise<Token> => {
    requests.push(request);
    return { token: `token-${++tokens}`, refreshAt: clock.now() + 60_000, expiresAt: clock.now() + 75_000 };
  };
  const bench = {
    storage: fakeStorage(host.files),
    /** Attached volumes in use, as last reported. */
    inUse: undefined as readonly string[] | undefined,
    isNodeKnown: true,
    target: fakeTargetGate(),
    clock,
    host,
    events,
    requests,
    /** Recorded durations of volume teardowns. */
    tornDown,
    /** Issues tokens; a test may replace it. */
    issue,
    /** Trust anchors and pod certificates; a test may replace them. */
    trustAnchors: (_selection: TrustAnchorSelection): string => "",
    credentials: (_volume: string, _index: number): PodCertificateCredentials => ({ key: "", certificateChain: "" }),
    labels: { zone: "a" } as Record<string, string>,
    /** Recorded labels of SELinux mounts. */
    measured: [] as string[],
    /** Feature gate SELinuxMount. */
    mountsAllModes: false,
    claims,
    volumes,
    /** Patches of claims' statuses, and how they are applied; a test may replace it. */
    patches: [] as object[],
    patch: async (claim: PersistentVolumeClaim, patch: object): Promise<PersistentVolumeClaim> => {
      const patched = { ...claim, status: merged(claim.status ?? {}, patch) };
      claims.set(claim.metadata.name, patched);
      return patched;
    },
    allocatable: { memory: "1Gi" } as Record<string, string>,
    setConfigMap: (name: string, data: Record<string, string>) =>
      void configMaps.set(name, { metadata: identity(name), data }),
    dropConfigMap: (name: string) => void configMaps.delete(name),
    setSecret(name: string, data: Record<string, string | Buffer>) {
      const base64 = (value: string | Buffer) =>
        (typeof value === "string" ? Buffer.from(value) : value).toString("base64");
      const encoded = Object.entries(data).map(([key, value]) => [key, base64(value)] as const);
      secrets.set(name, { metadata: identity(name), data: Object.fromEntries(encoded) });
    },
    /** Content of a file in the volume, following links. */
    text: async (path: string) => (await host.fs.readFile(path)).toString("utf8"),
    /** A fresh stage on the same machine, as after a restart of graftlet. */
    start: () =>
      createVolumes({
        host,
        clock,
        rootDir,
        nodeName: "node",
        measures: {
          ...unmeasured.volumes,
          tornDown: (plugin, _ms, failed) => void tornDown.push(`${plugin} ${failed ? "failed" : "gone"}`),
          unmapped: (plugin, _ms, failed) => void tornDown.push(`unmap_volume ${plugin} ${failed ? "failed" : "gone"}`),
          selinuxContainersDiffer: (isError, mode) => void bench.measured.push(`containers differ ${isError} ${mode}`),
          selinuxPodsDiffer: (isError, plugin, mode) =>
            void bench.measured.push(`pods differ ${isError} ${plugin} ${mode}`),
          selinuxAdmitted: (plugin, mode) => void bench.measured.push(`admitted ${plugin} ${mode}`),
          deviceUnmapped: (plugin, _ms, failed) =>
            void tornDown.push(`unmap_device ${plugin} ${failed ? "failed" : "gone"}`),
        },
        log: silentLog(),
        events: {
          event: (about, type, reason, message) => void events.push(`${about.kind} ${type} ${reason}: ${message}`),
        },
        objects: {
          configMap: async (_namespace, name) => read(configMaps, "configmap", name),
          secret: async (_namespace, name) => read(secrets, "secret", name),
        },
        claims: {
          claim: async (_namespace, name) => read(claims, "persistentvolumeclaims", name),
          async patchStatus(claim, patch) {
            bench.patches.push(patch);
            return bench.patch(claim, patch);
          },
          persistentVolume: async (name) => read(volumes, "persistentvolumes", name),
        },
        drivers: bench.storage,
        onVolumesInUse: (names) => void (bench.inUse = names),
        node: () =>
          bench.isNodeKnown
            ? { metadata: { name: "node", labels: bench.labels }, status: bench.storage.status }
            : undefined,
        waitForTarget: bench.target.present,
        tokens: { token: (_pod, request) => bench.issue(request) },
        trustBundles: { trustAnchors: async (selection) => bench.trustAnchors(selection) },
        podCertificates: { credentials: (_pod, volume, index) => bench.credentials(volume, index) },
        allocatable: () => bench.allocatable,
        mountsAllModes: bench.mountsAllModes,
      }),
  };
  return bench;
}

export type Bench = ReturnType<typeof volumeBench>;

/** Mounts the volumes with a fresh stage. */
export async function mounted(
  bench: Bench,
  volumes: readonly Volume[],
  spec: Parameters<typeof podWith>[1] = {},
  metadata: Parameters<typeof podWith>[2] = {},
) {
  const stage = bench.start();
  await stage.mount(podWith(volumes, spec, metadata), never);
  return stage.mounted("uid-1");
}

/** The event for a volume that cannot be set up. */
export async function refusal(bench: Bench, volume: Volume, spec: Parameters<typeof podWith>[1] = {}): Promise<string> {
  const giveUp = new AbortController();
  const mounting = bench.start().mount(podWith([volume], spec), giveUp.signal);
  await bench.clock.advance(0);
  giveUp.abort();
  await assert.rejects(mounting, { code: "cancelled" });
  return bench.events.join("\n");
}

/** That event, with the given text. */
export const failed = (text: string) => `Pod Warning FailedMount: MountVolume.SetUp failed for volume "v" : ${text}`;

/** Gives the bench's machine SELinux. */
export function installSelinux({ host: { files } }: Bench): void {
  files.put("/sys/fs/selinux/enforce", { data: "1" });
  files.put("/etc/selinux/config", { data: "SELINUXTYPE=default\n" });
  files.put("/etc/selinux/default/contexts/lxc_contexts", {
    data: 'process = "system_u:system_r:container_t:s0"\nfile = "system_u:object_r:container_file_t:s0"\n',
  });
}
