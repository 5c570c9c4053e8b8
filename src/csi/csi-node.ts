import type { ApiClient } from "../api/client.ts";
import { CodedError, messageOf, codeOf, ignoreNotFound } from "../lib/errors.ts";
import type { Clock } from "../lib/clock.ts";
import { untilAborted } from "../lib/service-group.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { CSIDriver, CSINode, Node } from "../objects.ts";
import type { DriverFacts } from "./facts.ts";
import { checkTopology, withDriver, withoutDriver } from "./node-ids.ts";
import type { TopologyRule } from "./topology.ts";
import { fewTries } from "./tries.ts";

/** The CSINode object of this node, and the drivers' entries on its Node. */
export interface CsiNodes {
  /** Creates or adopts the CSINode. @throws CodedError in the kubelet's words. */
  initialize(signal: AbortSignal): Promise<void>;
  /** Adds a driver, with the topology that may become labels of the Node. @throws CodedError in the kubelet's words. */
  install(driver: string, facts: DriverFacts, signal: AbortSignal): Promise<Shown>;
  /** Updates a driver's facts on the CSINode only. @throws CodedError in the kubelet's words. */
  update(driver: string, facts: DriverFacts, signal: AbortSignal): Promise<void>;
  /** Removes a driver. @throws CodedError in the kubelet's words. */
  uninstall(driver: string, signal: AbortSignal): Promise<void>;
}

/** Outcome of adding a driver. */
export interface Shown {
  /** True if the cluster has a CSIDriver object of that name; without one no topology is published. */
  readonly isKnown: boolean;
  /** Topology keys that were not published. */
  readonly leftOut: readonly string[];
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
const migrated = ["aws-ebs", "azure-disk", "azure-file", "cinder", "gce-pd", "portworx-volume", "vsphere-volume"]
  .map((name) => `kubernetes.io/${name}`)
  .join(",");
/** Timeout of a registering driver for the node's CSINode, milliseconds. */
const patienceMs = 120_000;
const longestCount = 2 ** 31 - 1;

/** Maintains the cluster's objects about CSI drivers on this node. Updates are serialized.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/csi-node-v1/ */
export function createCsiNodes(deps: CsiNodesDeps): CsiNodes {
  const { client, nodeName, clock, mayLabel } = deps;
  const node = `/api/v1/nodes/${nodeName}`;
  const inTurn = createSemaphore(1);
  const own = createOwnCsiNode(deps);
  const patchNode = async (change: (found: Node) => object | undefined, signal: AbortSignal) => {
    const patch = change(await client.get<Node>(node, { signal }));
    if (patch) await client.patch(node, { type: "strategic", body: { metadata: patch } }, { signal });
  };
  const tries = async (what: string, step: string, work: () => Promise<unknown>, signal: AbortSignal) => {
    await fewTries(clock, step, () => inTurn(work), signal).catch((error: unknown) => {
      throw new CodedError(codeOf(error), `${what}${messageOf(error)}`, { cause: error });
    });
  };
  /** Published topology keys, by driver. */
  const shownKeys = new Map<string, ReadonlySet<string>>();
  const update: CsiNodes["update"] = async (driver, facts, signal) => {
    const keys = shownKeys.get(driver) ?? new Set();
    const onCsiNode = () => own.show(driverOf(driver, { ...facts, topology: only(facts.topology, keys) }), signal);
    const what = "error updating CSINode object with CSI driver node info: ";
    await tries(what, "error updating CSINode", onCsiNode, signal);
  };
  return {
    async initialize(signal) {
      const work = async () => own.takeOver((await client.get<Node>(node, { signal })).metadata.uid ?? "", signal);
      await tries("", "error updating CSINode annotation", work, signal);
    },
    async install(driver, facts, signal) {
      if (facts.nodeID === "") {
        const why = "error adding CSI driver node info: driverNodeID must not be empty";
        throw new CodedError("invalid_argument", why);
      }
      // Without the Node's UID it would mistake the CSINode for another node's.
      await untilAborted(own.takenOver, clock.within(patienceMs, signal));
      let isKnown = false;
      const onNode = async () => {
        isKnown = (await ignoreNotFound(client.get<CSIDriver>(`${csiDrivers}/${driver}`, { signal }))) !== undefined;
        await patchNode((found) => {
          checkTopology(found, facts.topology);
          const { labels = {} } = found.metadata;
          // A label that the Node already has was set by someone else.
          const isShown = ([key, value]: readonly [string, string]) =>
            isKnown && (labels[key] === value || mayLabel(driver, key));
          const keys = new Set(Object.entries(facts.topology).flatMap((one) => (isShown(one) ? [one[0]] : [])));
          shownKeys.set(driver, keys);
          return withDriver(found, driver, { ...facts, topology: only(facts.topology, keys) });
        }, signal);
      };
      await tries("error updating Node object with CSI driver node info: ", "error updating node", onNode, signal);
      await update(driver, facts, signal);
      const shown = shownKeys.get(driver);
      return { isKnown, leftOut: Object.keys(facts.topology).filter((key) => !shown?.has(key)) };
    },
    update,
    async uninstall(driver, signal) {
      const what = "error uninstalling CSI driver from CSINode object ";
      await tries(what, "error updating CSINode", () => own.hide(driver, signal), signal);
      shownKeys.delete(driver);
      const onNode = () => patchNode((found) => withoutDriver(found, driver), signal);
      await tries("error removing CSI driver node info from Node object ", "error updating node", onNode, signal);
    },
  };
}

const csiDrivers = "/apis/storage.k8s.io/v1/csidrivers";

function only(topology: DriverFacts["topology"], keys: ReadonlySet<string>): DriverFacts["topology"] {
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
  /** Reads or creates the CSINode. @throws conflict after deleting one of an earlier Node of the same name. */
  const owned = async (signal: AbortSignal): Promise<CSINode> => {
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
      const found = await owned(signal);
      if (found.metadata.annotations?.[migratedAnnotation] !== migrated) await write(annotated(found), signal);
      takenOver.resolve();
    },
    async show(wanted: Driver, signal: AbortSignal): Promise<void> {
      const found = await owned(signal);
      const known = driversOf(found).find(({ name }) => name === wanted.name);
      if (known && isSame(known, wanted)) return;
      const others = driversOf(found).filter(({ name }) => name !== wanted.name);
      await write(annotated({ ...found, spec: { ...found.spec, drivers: [...others, wanted] } }), signal);
    },
    async hide(driver: string, signal: AbortSignal): Promise<void> {
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
      annotations: { [migratedAnnotation]: migrated },
      ownerReferences: [{ apiVersion: "v1", kind: "Node", name, uid }],
    },
    spec: { drivers: [] },
  };
}

function annotated(found: CSINode): CSINode {
  const { annotations } = found.metadata;
  return { ...found, metadata: { ...found.metadata, annotations: { ...annotations, [migratedAnnotation]: migrated } } };
}

function driversOf({ spec }: CSINode): readonly Driver[] {
  return spec.drivers ?? [];
}

function driverOf(name: string, { nodeID, maxVolumes, topology }: DriverFacts): Driver {
  const count = Number(maxVolumes);
  return {
    name,
    nodeID,
    topologyKeys: Object.keys(topology).sort(),
    ...(count > 0 && { allocatable: { count: Math.min(count, longestCount) } }),
  };
}

function isSame(known: Driver, wanted: Driver): boolean {
  return (
    known.nodeID === wanted.nodeID &&
    known.allocatable?.count === wanted.allocatable?.count &&
    (known.topologyKeys ?? []).toSorted().join() === (wanted.topologyKeys ?? []).join()
  );
}
