import { withCredentialProviders } from "./credential-providers.ts";
import { type ConfigDocument, decode } from "./decode.ts";
import type { ConfigIo } from "./documents.ts";
import { checkPort } from "./field-checks.ts";
import { type ConfiguredProcess, decodeNode, readShared, type SharedSettings } from "./graftlet-configuration.ts";
import { type Endpoint, endpointAt } from "./process-endpoints.ts";
import { absoluteDirectory, hasAccount, type NodeConfig } from "./node-config.ts";
import type { Options } from "./option-fields.ts";
import { refuse } from "./refusal.ts";
import { field, type Shape } from "./schema.ts";
import { int32, text, texts } from "./value-types.ts";

const fleetFields = {
  release: field(text, ""),
  nodeNames: field(texts, []),
  listener: { port: field(int32, 0), hostKeyFile: field(text, "") },
  outside: { addresses: field(texts, []), firstPort: field(int32, 10_350, { check: checkPort(false) }) },
} satisfies Shape;

/** Where machines open their reverse tunnels: a port of graftlet's Pod, and the file of its host key. */
export interface FleetListener {
  readonly port: number;
  readonly hostKeyFile: string;
}

/** Where the API server reaches the nodes of a replica outside the cluster. */
export interface OutsideReplica {
  /** Addresses of its machine: at most one of each family is used. */
  readonly addresses: readonly string[];
  /** Its first node has this port, and the others the following ones. */
  readonly firstPort: number;
}

/** Settings of the fleet: the machines of GraftedNode objects in the Pod's namespace. */
export interface FleetConfig {
  /** The Helm release, a part of the nodes' provider IDs. */
  readonly release: string;
  /** True if a node may have this name. */
  mayHave(nodeName: string): boolean;
  /** The patterns of allowed names, for messages. */
  readonly nodeNames: readonly string[];
  /** Directory on graftlet's own machine for the login files of nodes; its name is not a valid node name. */
  readonly directory: string;
  /** True if each node's kubelet API is reached at its own Service. */
  readonly hasServices: boolean;
  /** Undefined if no machine can open a reverse tunnel. */
  readonly listener: FleetListener | undefined;
  /** Undefined in a Pod. */
  readonly outside?: OutsideReplica;
  /** Decodes a node like an entry of `nodes` in a GraftletConfiguration. @param entry the node's fields.
   *  @throws CodedError invalid_argument, naming the path of the field. */
  decodeNode(entry: ConfigDocument, object: FleetObject): NodeConfig;
}

export interface FleetObject {
  /** How messages refer to the object, for example `GraftedNode edge-1`. */
  readonly title: string;
  /** The Secret for the node's certificates. */
  readonly certificateSecret: string;
}

/** Decodes the `fleet` of a GraftletConfiguration; undefined if it has none. @throws CodedError invalid_argument */
export function readFleet(
  io: ConfigIo,
  path: string,
  shared: SharedSettings,
  options: Options,
): FleetConfig | undefined {
  if (!shared.fleet) return undefined;
  const { release, nodeNames, listener, outside } = decode(fleetFields, shared.fleet, { file: path, path: "fleet" });
  if (release === "") throw refuse(`${path}: fleet.release`, undefined, "is not given; specify the Helm release");
  const wrong = nodeNames.find((pattern) => !/^[a-z0-9.*-]*[a-z0-9][a-z0-9.*-]*$/.test(pattern));
  if (wrong !== undefined || nodeNames.length === 0)
    throw refuse(`${path}: fleet.nodeNames`, wrong ?? [], "list the names that nodes may have, such as edge-*");
  if (!hasAccount(io, options))
    throw refuse(`${path}: fleet`, release, "needs graftlet to run in a Pod; omit it elsewhere");
  if (shared.kubeletAddress === "host")
    throw refuse(`${path}: kubeletAddress`, "host", "a fleet does not support it; set service or podIP");
  if (listener.port !== 0 && listener.hostKeyFile === "")
    throw refuse(
      `${path}: fleet.listener.hostKeyFile`,
      undefined,
      "is not given; specify the file of the listener's key",
    );
  const shapes = nodeNames.map(patternShape);
  return {
    release,
    nodeNames,
    mayHave: (nodeName) => shapes.some((shape) => shape.test(nodeName)),
    directory: `${absoluteDirectory("--cert-dir", options.certDir)}/_logins`,
    hasServices: shared.kubeletAddress === "service",
    listener: listener.port === 0 ? undefined : listener,
    ...(outside.addresses.length > 0 && { outside }),
    decodeNode(entry, { title, certificateSecret }) {
      const where = { path: title, place: "spec", options, shared: { ...shared, certificateSecret } };
      const node = decodeNode(io, entry, where);
      return withCredentialProviders(io, options, [node])[0] ?? node;
    },
  };
}

/** The metrics are for scrapers outside the Pod. */
const metricsAddress = "0.0.0.0";

const nodeObjectsFields = { release: field(text, "") } satisfies Shape;

/** Decodes the `nodeObjects` of a GraftletConfiguration; undefined if it has none, and its nodes are not shown as objects.
 *  @throws CodedError invalid_argument */
export function readNodeObjects(
  io: ConfigIo,
  path: string,
  shared: SharedSettings,
): { readonly release: string } | undefined {
  if (!shared.nodeObjects) return undefined;
  const { release } = decode(nodeObjectsFields, shared.nodeObjects, { file: path, path: "nodeObjects" });
  if (release === "") throw refuse(`${path}: nodeObjects.release`, undefined, "is not given; specify the Helm release");
  if (!io.env["KUBERNETES_SERVICE_HOST"])
    throw refuse(`${path}: nodeObjects`, release, "needs graftlet to run in a Pod; omit it elsewhere");
  return { release };
}

/** Returns where a process serves the metrics of its GraftedNodes; undefined if it serves none.
 *  @throws CodedError invalid_argument if it has no GraftedNodes, or another of its endpoints uses the port. */
export function readMetricsEndpoint(
  path: string,
  { nodes, shared, health, page }: ConfiguredProcess,
): Endpoint | undefined {
  const setting = `${path}: metricsPort`;
  const endpoint = endpointAt({ address: metricsAddress, port: shared.metricsPort }, nodes, setting);
  if (!endpoint) return undefined;
  const { port } = endpoint;
  if (!shared.fleet && !shared.nodeObjects)
    throw refuse(setting, port, "needs fleet or nodeObjects: there are no GraftedNodes to measure; omit it");
  const others = { healthzPort: health, pagePort: page };
  const other = Object.entries(others).find(([, at]) => at?.port === port)?.[0];
  if (other !== undefined) throw refuse(setting, port, `${other} uses that port; use another one`);
  return endpoint;
}

/** Reads the fleet from the --nodes file, in a Pod that uses its service account; undefined elsewhere.
 *  @param known the shared settings of that file, if already read.
 *  @throws CodedError invalid_argument */
export function fleetOfPod(io: ConfigIo, options: Options, known?: SharedSettings): FleetConfig | undefined {
  const { nodes: path, kubeconfig } = options;
  if (path === undefined || kubeconfig || !io.env["KUBERNETES_SERVICE_HOST"]) return undefined;
  return readFleet(io, path, known ?? readShared(io, path), options);
}

function patternShape(pattern: string): RegExp {
  const parts = pattern.split("*").map((part) => part.replaceAll(".", "[.]"));
  return new RegExp(`^${parts.join("[a-z0-9.-]*")}$`);
}
