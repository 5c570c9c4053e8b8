import type { NetworkInspectInfo } from "dockerode";
import { hasCode, ignoreCode, ignoreNotFound, messageOf } from "../../../src/lib/errors.ts";
import { nodeLabel } from "../../../src/pod/labels.ts";
import type { DockerParts } from "../parts.ts";
import { createSharedPromise } from "../../../src/lib/single-flight.ts";

/** The Docker network of this node's pods. */
export type PodNetwork = ReturnType<typeof createPodNetwork>;

/** Timeout of one attempt to create or find the network, milliseconds. */
const obtainTimeoutMs = 60_000;

/** The bridge network with the configured name. A network without this node's label is used as is. A network with the label is
 *  re-created if its subnet is to change and no container is attached; it remains when graftlet stops. Networks are addressed by
 *  ID, since names are not unique in Docker. */
export function createPodNetwork(parts: DockerParts) {
  const { config, clock, log } = parts;
  const shared = createSharedPromise<string>(clock, obtainTimeoutMs);
  let wanted = config.podCIDR === undefined ? undefined : ipv4Subnet(config.podCIDR);
  let id: string | undefined;
  let isCurrent = false;
  let problem: string | undefined;
  let lastLogged: string | undefined;

  const obtain = async (signal: AbortSignal): Promise<string> => {
    const subnet = wanted;
    try {
      const network = await obtainNetwork(parts, subnet, signal);
      id = network.Id;
      isCurrent = subnet === wanted && hasSubnet(network, subnet);
      problem = undefined;
      if (!hasSubnet(network, subnet)) logSubnet(network, subnet);
      return network.Id;
    } catch (error) {
      problem = messageOf(error);
      throw error;
    }
  };
  const logSubnet = (network: NetworkInspectInfo, subnet: string | undefined) => {
    const text = `${network.Id} ${subnet}`;
    if (lastLogged === text) return;
    lastLogged = text;
    const why = isOurs(parts, network) ? "pods are attached to it" : "this node did not create it";
    log.warn(
      { network: config.network, subnet: subnetOf(network), wanted: subnet, why },
      "cannot change the pod network's subnet",
    );
  };
  const ensure = async (signal: AbortSignal) => (id !== undefined && isCurrent ? id : shared(obtain, signal));
  return {
    /** Returns the network's ID, and creates the network if it is missing. @throws CodedError with the daemon's message. */
    ensure,
    /** The network's ID, if known. */
    id: (): string | undefined => id,
    /** Reason why there is no network, or undefined. */
    problem: (): string | undefined => problem,
    /** Sets the pods' subnet (spec.podCIDRs, comma-separated) and creates the network accordingly. */
    async setSubnet(podCidrs: string, signal: AbortSignal): Promise<void> {
      const subnet = ipv4SubnetIn(podCidrs);
      if (subnet === undefined) log.warn({ podCidrs }, "no IPv4 pod CIDR; Docker chooses the subnet");
      if (subnet !== undefined && subnet !== wanted) {
        wanted = subnet;
        isCurrent = false;
      }
      await ensure(signal);
    },
    /** Checks that the network still exists, after the daemon reported that something is missing. */
    async verify(signal: AbortSignal): Promise<boolean> {
      if (id === undefined) return false;
      if (await inspectNetwork(parts, id, signal)) return true;
      id = undefined;
      isCurrent = false;
      return false;
    },
  };
}

async function obtainNetwork(
  parts: DockerParts,
  subnet: string | undefined,
  signal: AbortSignal,
): Promise<NetworkInspectInfo> {
  const found = await findNetwork(parts, signal);
  if (!found) return createNetwork(parts, subnet, signal);
  if (hasSubnet(found, subnet) || !isOurs(parts, found)) return found;
  return (await removeUnused(parts, found, signal)) ? createNetwork(parts, subnet, signal) : found;
}

/** Returns the network with the configured name; if there are several, this node's own comes first, then the oldest. */
async function findNetwork(parts: DockerParts, signal: AbortSignal): Promise<NetworkInspectInfo | undefined> {
  const { docker, config } = parts;
  const filters = JSON.stringify({ name: [config.network] });
  const networks = await docker.request<NetworkInspectInfo[]>({ path: "/networks", query: { filters } }, signal);
  const [first] = networks
    .filter(({ Name }) => Name === config.network)
    .sort((a, b) => Number(isOurs(parts, b)) - Number(isOurs(parts, a)) || (a.Created < b.Created ? -1 : 1));
  return first && inspectNetwork(parts, first.Id, signal);
}

function inspectNetwork(
  { docker }: DockerParts,
  id: string,
  signal: AbortSignal,
): Promise<NetworkInspectInfo | undefined> {
  return ignoreNotFound(docker.request<NetworkInspectInfo>({ path: `/networks/${id}` }, signal));
}

/** @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Network/operation/NetworkCreate */
async function createNetwork(
  parts: DockerParts,
  subnet: string | undefined,
  signal: AbortSignal,
): Promise<NetworkInspectInfo> {
  const { docker, config, nodeName, log } = parts;
  const body = {
    Name: config.network,
    CheckDuplicate: true,
    Driver: "bridge",
    Labels: { [nodeLabel]: nodeName },
    ...(subnet !== undefined && { IPAM: { Config: [{ Subnet: subnet }] } }),
  };
  // Another client may have just created it.
  await ignoreCode(docker.request({ method: "POST", path: "/networks/create", body }, signal), "conflict");
  const created = await findNetwork(parts, signal);
  if (!created) throw new Error(`the network ${config.network} was removed right after its creation`);
  log.info({ network: config.network, subnet: subnetOf(created) }, "created the pod network");
  return created;
}

/** Removes a network. @returns false if a container is attached: then the daemon refuses to remove it. */
async function removeUnused(parts: DockerParts, network: NetworkInspectInfo, signal: AbortSignal): Promise<boolean> {
  const { docker } = parts;
  if (Object.keys(network.Containers ?? {}).length > 0) return false;
  try {
    await docker.request({ method: "DELETE", path: `/networks/${network.Id}` }, signal);
    return true;
  } catch (error) {
    if (hasCode(error, "not_found")) return true;
    if (hasCode(error, "permission_denied", "conflict")) return false;
    throw error;
  }
}

function isOurs({ nodeName }: DockerParts, { Labels }: NetworkInspectInfo): boolean {
  return Labels?.[nodeLabel] === nodeName;
}

function subnetOf({ IPAM }: NetworkInspectInfo): string | undefined {
  return IPAM?.Config?.map(({ Subnet }) => Subnet && ipv4Subnet(Subnet)).find((subnet) => subnet !== undefined);
}

/** True if the network has the wanted subnet, or no particular one is wanted. */
function hasSubnet(network: NetworkInspectInfo, wanted: string | undefined): boolean {
  return wanted === undefined || subnetOf(network) === wanted;
}

/** Normalizes an IPv4 subnet: `10.88.0.7/24` is `10.88.0.0/24`. Undefined for any other text. */
export function ipv4Subnet(text: string): string | undefined {
  const parts = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\/(\d{1,2})$/.exec(text.trim())?.slice(1).map(Number);
  if (!parts) return undefined;
  const [bits = 0, ...bytes] = [parts.at(-1), ...parts.slice(0, 4)].map(Number);
  if (bits > 32 || bytes.some((byte) => byte > 255)) return undefined;
  const size = 2 ** (32 - bits);
  const address = bytes.reduce((sum, byte) => sum * 256 + byte, 0);
  const first = address - (address % size);
  return `${[24, 16, 8, 0].map((shift) => Math.floor(first / 2 ** shift) % 256).join(".")}/${bits}`;
}

/** The IPv4 subnet of a node's comma-separated pod CIDRs, which have at most one of each family. */
export function ipv4SubnetIn(podCidrs: string): string | undefined {
  return podCidrs
    .split(",")
    .map(ipv4Subnet)
    .find((subnet) => subnet !== undefined);
}
