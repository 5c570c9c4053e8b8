import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Duplex, duplexPair, pipeline } from "node:stream";
import type { TestContext } from "node:test";
import { localHost } from "../../../providers/local/host.ts";
import { createDeviceManager, type DeviceManager } from "../../../src/devices/manager.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import type { Container, Pod } from "../../../src/objects.ts";
import type { Host } from "../../../src/seams/host.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { type TestPod, aContainer, aPod } from "../../fakes/pods.ts";
import { unalignedTopology } from "../../fakes/topology.ts";
import { startTestPlugin, type TestPlugin, type TestPluginOptions } from "../../harness/device-plugin.ts";
import { waitFor } from "../../harness/wait.ts";
import { silent } from "../api/fake-client.ts";

export const resource = "test.device/gpu";
export const { signal } = new AbortController();

export interface Rig {
  /** The directory of kubelet.sock. */
  readonly directory: string;
  readonly devices: DeviceManager;
  /** Whether all sources are ready, and the UIDs of running pods. */
  readonly sources: { seen: boolean; alive: readonly string[] };
  /** Woken pods, and the number of triggered node status updates. */
  readonly woken: string[];
  /** Recorded plugin measurements. */
  readonly measured: readonly string[];
  /** Socket of the PodResources API, and the pods that it knows. */
  readonly monitors: string;
  readonly pods: Pod[];
  readonly hurried: () => number;
  /** Starts a plugin that has not registered yet. */
  plugin(more?: Partial<TestPluginOptions>): Promise<TestPlugin>;
  /** The node's amounts of a resource, `healthy/all`. */
  shown(name?: string): string;
  /** A new process on the same root directory, after stopping this one. */
  restarted(): Promise<Rig>;
  stop(): Promise<void>;
}

/** Device manager with a temporary root directory, served on a real socket. */
export async function rig(t: TestContext, through: (host: Host) => Host = (host) => host): Promise<Rig> {
  const root = mkdtempSync(join(tmpdir(), "graftlet-devices-"));
  t.after(() => rmSync(root, { recursive: true, force: true }));
  return rigOn(t, root, through);
}

async function rigOn(t: TestContext, root: string, through: (host: Host) => Host): Promise<Rig> {
  const clock = systemClock();
  const woken: string[] = [];
  const measured: string[] = [];
  const pods: Pod[] = [];
  let hurries = 0;
  const sources = { seen: true, alive: [] as readonly string[] };
  const devices = createDeviceManager({
    allSourcesReady: () => sources.seen,
    isAlive: (uid) => sources.alive.includes(uid),
    host: through(localHost({ clock })),
    rootDir: root,
    numaNodes: [0, 1],
    requestTimeoutMs: 20_000,
    onChange: () => void hurries++,
    pods: {
      all: () => pods,
      listed: () => pods.filter(({ status }) => status?.phase !== "Succeeded"),
      byName: (namespace, name) =>
        pods.find(({ metadata }) => metadata.namespace === namespace && metadata.name === name),
    },
    measures: {
      podResources: unmeasured.podResources,
      devices: {
        registering: (name) => void measured.push(`registering ${name}`),
        allocated: (name) => void measured.push(`allocated ${name}`),
      },
    },
    signals: { wakeWorker: { send: (uid, cause) => void woken.push(`${uid} ${cause}`) } },
    clock,
    log: silent,
  });
  const ending = new AbortController();
  const running = Promise.all(devices.runnables.map((runnable) => runnable.run(ending.signal)));
  const stop = async () => {
    ending.abort();
    await running;
  };
  t.after(stop);
  const directory = join(root, "device-plugins");
  await waitFor("the socket of registration", () => existsSync(join(directory, "kubelet.sock")), { everyMs: 5 });
  return {
    directory,
    monitors: join(root, "pod-resources", "kubelet.sock"),
    pods,
    devices,
    sources,
    woken,
    measured,
    hurried: () => hurries,
    async plugin(more) {
      const plugin = await startTestPlugin({ directory, resource, devices: ["a", "b"], ...more });
      t.after(() => plugin[Symbol.asyncDispose]());
      return plugin;
    },
    shown(name = resource) {
      const { capacity, allocatable } = devices.amounts();
      return `${allocatable[name] ?? "-"}/${capacity[name] ?? "-"}`;
    },
    async restarted() {
      await stop();
      return rigOn(t, root, through);
    },
    stop,
  };
}

/** A remote target, whose connections are not local sockets. */
export function elsewhere(host: Host): Host {
  const carried = (socket: Duplex): Duplex => {
    const [near, far] = duplexPair();
    pipeline(far, socket, far, () => {});
    return near;
  };
  return {
    ...host,
    dial: async (to, stop) => carried(await host.dial(to, stop)),
    ...(host.listen && {
      listen: (at, take, stop) => host.listen?.(at, (socket) => take(carried(socket)), stop) ?? assert.fail(),
    }),
  };
}

/** A pod whose only container, `c`, requests this many devices. */
export function asking(count: number, uid = "uid-1", more: Partial<TestPod["spec"]> = {}): TestPod {
  return aPod({ containers: [wanting("c", count)], ...more }, { uid, name: uid });
}

export function wanting(name: string, count: number, more: Partial<Container> = {}): Container {
  return aContainer(name, { resources: { limits: { [resource]: String(count) } }, ...more });
}

/** An allocator as admission uses it; by default nothing is running and all sources are ready. */
export function allocatorOf(
  { devices, sources }: Rig,
  { allSourcesReady = true, alive = [] }: { allSourcesReady?: boolean; alive?: readonly string[] } = {},
) {
  const { allocate } = unalignedTopology(devices);
  return {
    allocatable: devices.allocatable,
    allocate(...given: Parameters<typeof allocate>) {
      Object.assign(sources, { seen: allSourcesReady, alive });
      return allocate(...given);
    },
  };
}
