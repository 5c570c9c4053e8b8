import type { ApiClient } from "../api/client.ts";
import type { HostFacts } from "../host/facts.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Node, NodeStatus } from "../objects.ts";
import { isExtendedResource } from "../pod/extended-resource.ts";
import { quantityNumber } from "../pod/quantity.ts";
import {
  type NodeIdentity,
  attachAnnotation,
  defaultLabels,
  newNode,
  providedAddressesAnnotation,
} from "./node-object.ts";
import { retryUntilDone } from "../lib/retry.ts";

/** Start of a node that registers for the first time, from its machine's boot to its first Ready. Repeated calls are ignored. */
export interface NodeStartMeasures {
  /** @param at milliseconds since the epoch. */
  booted(at: number): void;
  /** The Node is about to be created. */
  registering(): void;
  /** The Node was created and did not exist before. */
  registered(): void;
  /** The API server shows the Node as Ready. */
  ready(): void;
}

export interface RegistrationDeps extends ClockAndLog {
  readonly client: ApiClient;
  readonly identity: NodeIdentity;
  /** Returns true if the devices in the Node's status belonged to another target. */
  readonly startsAnew: (signal: AbortSignal) => Promise<boolean>;
  readonly measures: Pick<NodeStartMeasures, "registering" | "registered">;
}

const retryDelayMs = 100;
const maxRetryDelayMs = 7_000;

/** Labels that are reconciled on an existing Node: those of the machine's system, name and topology, whether default or set on the
 *  command line. (kubelet, updateDefaultLabels) */
const reconciledLabels: ReadonlySet<string> = new Set([
  "kubernetes.io/hostname",
  "topology.kubernetes.io/zone",
  "topology.kubernetes.io/region",
  "failure-domain.beta.kubernetes.io/zone",
  "failure-domain.beta.kubernetes.io/region",
  "node.kubernetes.io/instance-type",
  "beta.kubernetes.io/instance-type",
  "kubernetes.io/os",
  "kubernetes.io/arch",
  "node.kubernetes.io/windows-build",
  "beta.kubernetes.io/os",
  "beta.kubernetes.io/arch",
]);

/** Creates the Node object, or takes over an existing one: labels of its system, name and topology and two annotations are
 *  reconciled; on a new target, extended resources are set to 0 until a plugin offers them. Other labels and taints of the command line are
 *  left as they are. Retries until it succeeds or the signal aborts.
 *  @see https://kubernetes.io/docs/concepts/architecture/nodes/#self-registration-of-nodes */
export async function register(
  deps: RegistrationDeps,
  facts: HostFacts,
  status: () => NodeStatus,
  signal: AbortSignal,
): Promise<void> {
  const { measures, clock, log } = deps;
  measures.registering();
  const delayMs = (_: unknown, failures: number) => Math.min(maxRetryDelayMs, retryDelayMs * 2 ** (failures - 1));
  const attempt = async () => {
    await registerOnce(deps, facts, status(), signal);
    log.info({}, "node is registered");
  };
  await retryUntilDone({ message: "cannot register node; retrying", delayMs, clock, log }, attempt, signal);
}

async function registerOnce(
  { client, identity, startsAnew, measures }: RegistrationDeps,
  facts: HostFacts,
  status: NodeStatus,
  signal: AbortSignal,
): Promise<void> {
  const path = `/api/v1/nodes/${identity.nodeName}`;
  const node = await ignoreNotFound(client.get<Node>(path, { signal }));
  if (!node) {
    await client.create("/api/v1/nodes", newNode(identity, facts, status), { signal });
    measures.registered();
    return;
  }
  const patch = reconcile(node, identity, facts);
  if (patch) await client.patch(path, { type: "strategic", body: patch }, { signal });
  const zeros = zeroesOf(node);
  if (!zeros || !(await startsAnew(signal))) return;
  await client.patch(`${path}/status`, { type: "strategic", body: { status: zeros } }, { signal });
}

/** Zeroes for the extended resources of an existing Node; undefined if it has none. */
function zeroesOf({ status }: Node): Pick<NodeStatus, "capacity" | "allocatable"> | undefined {
  const shown = Object.entries(status?.capacity ?? {}).filter(
    ([name, amount]) => isExtendedResource(name) && quantityNumber(amount) !== 0,
  );
  if (shown.length === 0) return undefined;
  const none = Object.fromEntries(shown.map(([name]) => [name, "0"]));
  return { capacity: none, allocatable: none };
}

/** Patch for the metadata of an existing Node; undefined for no change. A label without a value is removed. */
function reconcile(
  node: Node,
  { nodeName, labels: own, annotations: given }: NodeIdentity,
  facts: HostFacts,
): object | undefined {
  const shown = node.metadata.labels ?? {};
  const labels = Object.fromEntries(
    Object.entries({ ...defaultLabels(nodeName, facts), ...own })
      .filter(([key, value]) => reconciledLabels.has(key) && (shown[key] ?? "") !== value)
      .map(([key, value]) => [key, value === "" ? null : value]),
  );
  const wanted = { [attachAnnotation]: "true", [providedAddressesAnnotation]: given[providedAddressesAnnotation] };
  const annotations = Object.fromEntries(
    Object.entries(wanted)
      .filter(([key, value]) => node.metadata.annotations?.[key] !== value)
      .map(([key, value]) => [key, value ?? null]),
  );
  const isAnnotated = Object.keys(annotations).length === 0;
  if (Object.keys(labels).length === 0 && isAnnotated) return undefined;
  return { metadata: { labels, ...(!isAnnotated && { annotations }) } };
}
