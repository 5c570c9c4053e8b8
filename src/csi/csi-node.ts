import type { ApiClient } from "../api/client.ts";
import { CodedError, messageOf, codeOf, ignoreNotFound, throwIfAborted } from "../lib/errors.ts";
import type { Clock } from "../lib/clock.ts";
import { untilAborted } from "../lib/runnables.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { CSIDriver, CSINode, Node } from "../objects.ts";
import { checkTopology, withDriver, withoutDriver, type DriverFacts } from "./node-metadata.ts";
import type { TopologyRule } from "./topology.ts";
import { aggregated } from "../lib/aggregate.ts";

/** The CSINode object of this node, and the drivers' entries on its Node. */
export type CsiNodes = ReturnType<typeof createCsiNodes>;

/** Outcome of adding a driver. */
export interface InstallOutcome {
  /** True if the cluster has a CSIDriver object of that name; without one no topology is published. */
  readonly hasCSIDriver: boolean;
  /** Topology keys that were not published. */
  readonly omittedKeys: readonly string[];
}

export interface CsiNodesDeps {
  readonly mayLabel: TopologyRule;
  readonly client: ApiClient;
  readonly nodeName: string;
  readonly clock: Clock;
}

type Driver = NonNullable<CSINode["spec"]["drivers"]>[number];

const migratedAnnotation = "storage.alpha.kubernetes.io/migrated-plugins";
/** In-tree volume types that the control plane migrates to CSI drivers on every node. */
const migratedPlugins = ["aws-ebs", "azure-disk", "azure-file", "cinder", "gce-pd", "portworx-volume", "vsphere-volume"]
  .map((name) => `kubernetes.io/${name}`)
  .join(",");
/** Maximum time for which a registering driver waits for the node's CSINode, milliseconds. */
const takeOverTimeoutMs = 120_000;
const maxCount = 2 ** 31 - 1;

/** Maintains the cluster's objects about CSI drivers on this node. Updates are serialized.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/csi-node-v1/ */
export function createCsiNodes(deps: CsiNodesDeps) {
  const { client, nodeName, clock, mayLabel } = deps;
  const node = `/api/v1/nodes/${nodeName}`;
  const serialize = createSemaphore(1);
  const own = createOwnCsiNode(deps);
  const patchNode = async (change: (found: Node) => object | undefined, signal: AbortSignal) => {
    const patch = change(await client.get<Node>(node, { signal }));
    if (patch) await client.patch(node, { type: "strategic", body: { metadata: patch } }, { signal });
  };
  const retry = async (what: string, step: string, work: () => Promise<unknown>, signal: AbortSignal) => {
    await retryWithBackoff(clock, step, () => serialize(work), signal).catch((error: unknown) => {
      throw new CodedError(codeOf(error), `${what}${messageOf(error)}`, { cause: error });
    });
  };
  /** Published topology keys, by driver. */
  const publishedKeys = new Map<string, ReadonlySet<string>>();
  const update = async (driver: string, facts: DriverFacts, signal: AbortSignal) => {
    const keys = publishedKeys.get(driver) ?? new Set();
    const onCsiNode = () =>
      own.putDriver(driverEntry(driver, { ...facts, topology: pickKeys(facts.topology, keys) }), signal);
    const what = "error updating CSINode object with CSI driver node info: ";
    await retry(what, "error updating CSINode", onCsiNode, signal);
  };
  return {
    /** Creates or adopts the CSINode. @throws CodedError in the kubelet's words. */
    async initialize(signal: AbortSignal) {
      const work = async () => own.takeOver((await client.get<Node>(node, { signal })).metadata.uid ?? "", signal);
      await retry("", "error updating CSINode annotation", work, signal);
    },
    /** Adds a driver, with the topology that may become labels of the Node. @throws CodedError in the kubelet's words. */
    async install(driver: string, facts: DriverFacts, signal: AbortSignal): Promise<InstallOutcome> {
      if (facts.nodeID === "") {
        const why = "error adding CSI driver node info: driverNodeID must not be empty";
        throw new CodedError("invalid_argument", why);
      }
      // Before the Node's UID is known, the CSINode would be mistaken for another Node's.
      await untilAborted(own.takenOver, clock.within(takeOverTimeoutMs, signal));
      let hasCSIDriver = false;
      const onNode = async () => {
        hasCSIDriver =
          (await ignoreNotFound(client.get<CSIDriver>(`${csiDrivers}/${driver}`, { signal }))) !== undefined;
        await patchNode((found) => {
          checkTopology(found, facts.topology);
          const { labels = {} } = found.metadata;
          // A label that the Node already has was set by someone else.
          const isAllowed = ([key, value]: readonly [string, string]) =>
            hasCSIDriver && (labels[key] === value || mayLabel(driver, key));
          const keys = new Set(Object.entries(facts.topology).flatMap((one) => (isAllowed(one) ? [one[0]] : [])));
          publishedKeys.set(driver, keys);
          return withDriver(found, driver, { ...facts, topology: pickKeys(facts.topology, keys) });
        }, signal);
      };
      await retry("error updating Node object with CSI driver node info: ", "error updating node", onNode, signal);
      await update(driver, facts, signal);
      const published = publishedKeys.get(driver);
      return { hasCSIDriver, omittedKeys: Object.keys(facts.topology).filter((key) => !published?.has(key)) };
    },
    /** Updates a driver's facts on the CSINode only. @throws CodedError in the kubelet's words. */
    update,
    /** Removes a driver. @throws CodedError in the kubelet's words. */
    async uninstall(driver: string, signal: AbortSignal) {
      const what = "error uninstalling CSI driver from CSINode object ";
      await retry(what, "error updating CSINode", () => own.removeDriver(driver, signal), signal);
      publishedKeys.delete(driver);
      const onNode = () => patchNode((found) => withoutDriver(found, driver), signal);
      await retry("error removing CSI driver node info from Node object ", "error updating node", onNode, signal);
    },
  };
}

const csiDrivers = "/apis/storage.k8s.io/v1/csidrivers";

function pickKeys(topology: DriverFacts["topology"], keys: ReadonlySet<string>): DriverFacts["topology"] {
  return Object.fromEntries(Object.entries(topology).filter(([key]) => keys.has(key)));
}

/** The CSINode of this Node. */
function createOwnCsiNode({ client, nodeName }: Pick<CsiNodesDeps, "client" | "nodeName">) {
  const all = "/apis/storage.k8s.io/v1/csinodes";
  const path = `${all}/${nodeName}`;
  const takenOver = Promise.withResolvers<void>();
  let owner = "";
  const read = (signal: AbortSignal) => ignoreNotFound(client.get<CSINode>(path, { signal }));
  const write = (changed: CSINode, signal: AbortSignal) => client.update<CSINode>(path, changed, { signal });
  /** Reads or creates the CSINode. @throws conflict after deleting the CSINode of an earlier Node of the same name. */
  const readOwned = async (signal: AbortSignal): Promise<CSINode> => {
    const made = () => client.create<CSINode>(all, newCsiNode(nodeName, owner), { signal });
    const found = (await read(signal)) ?? (await made());
    const owners = (found.metadata.ownerReferences ?? []).filter(({ kind }) => kind === "Node");
    if (owners.some(({ name, uid }) => name === nodeName && uid === owner)) return found;
    await ignoreNotFound(client.delete(path, undefined, { signal }));
    const [name, former, present] = [nodeName, owners.at(-1)?.uid ?? "", owner].map((text) => JSON.stringify(text));
    const why = `CSINode ${name} was owned by different node (oldNodeID=${former}, newNodeID=${present}), deleted it`;
    throw new CodedError("conflict", why);
  };
  return {
    /** Resolves once the CSINode exists. */
    takenOver: takenOver.promise,
    /** Creates or adopts the CSINode. @param uid of the Node. */
    async takeOver(uid: string, signal: AbortSignal): Promise<void> {
      owner = uid;
      const found = await readOwned(signal);
      if (found.metadata.annotations?.[migratedAnnotation] !== migratedPlugins)
        await write(withMigratedPlugins(found), signal);
      takenOver.resolve();
    },
    async putDriver(wanted: Driver, signal: AbortSignal): Promise<void> {
      const found = await readOwned(signal);
      const known = driversOf(found).find(({ name }) => name === wanted.name);
      if (known && isSame(known, wanted)) return;
      const others = driversOf(found).filter(({ name }) => name !== wanted.name);
      await write(withMigratedPlugins({ ...found, spec: { ...found.spec, drivers: [...others, wanted] } }), signal);
    },
    async removeDriver(driver: string, signal: AbortSignal): Promise<void> {
      const found = await read(signal);
      if (!found) return;
      const drivers = driversOf(found).filter(({ name }) => name !== driver);
      if (drivers.length === driversOf(found).length) return;
      await write({ ...found, spec: { ...found.spec, drivers } }, signal);
    },
  };
}

function newCsiNode(name: string, uid: string): CSINode {
  return {
    apiVersion: "storage.k8s.io/v1",
    kind: "CSINode",
    metadata: {
      name,
      annotations: { [migratedAnnotation]: migratedPlugins },
      ownerReferences: [{ apiVersion: "v1", kind: "Node", name, uid }],
    },
    spec: { drivers: [] },
  };
}

function withMigratedPlugins(found: CSINode): CSINode {
  const { annotations } = found.metadata;
  return {
    ...found,
    metadata: { ...found.metadata, annotations: { ...annotations, [migratedAnnotation]: migratedPlugins } },
  };
}

function driversOf({ spec }: CSINode): readonly Driver[] {
  return spec.drivers ?? [];
}

function driverEntry(name: string, { nodeID, maxVolumes, topology }: DriverFacts): Driver {
  const count = Number(maxVolumes);
  return {
    name,
    nodeID,
    topologyKeys: Object.keys(topology).sort(),
    ...(count > 0 && { allocatable: { count: Math.min(count, maxCount) } }),
  };
}

function isSame(known: Driver, wanted: Driver): boolean {
  return (
    known.nodeID === wanted.nodeID &&
    known.allocatable?.count === wanted.allocatable?.count &&
    (known.topologyKeys ?? []).toSorted().join() === (wanted.topologyKeys ?? []).join()
  );
}

/** Attempts, and delays between them in milliseconds: the kubelet's. */
const maxAttempts = 4;
const initialDelayMs = 10;
const factor = 5;
const jitter = 1.1;

/** Retries a piece of work up to four times within half a second.
 *  @param what describes the work in the error. @throws CodedError with all failures. */
async function retryWithBackoff<T>(
  clock: Clock,
  what: string,
  work: () => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  const failures: unknown[] = [];
  for (let ms = initialDelayMs; failures.length < maxAttempts; ms *= factor) {
    if (failures.length > 0) await clock.sleep(ms * clock.jitter(1, jitter), signal);
    try {
      return await work();
    } catch (error) {
      throwIfAborted(signal);
      failures.push(error);
    }
  }
  const why = aggregated(failures);
  const message = `${what}: timed out waiting for the condition; caused by: ${messageOf(why)}`;
  throw new CodedError(codeOf(why), message, { cause: why });
}
