import { readConfigFields, invalidField, socketPath } from "../config-fields.ts";
import { readInPod } from "../local/in-pod.ts";

export interface DockerConfig {
  /** Absolute path of the daemon's socket. */
  readonly socket: string;
  /** Name of the Docker network of the node's pods; created if missing. */
  readonly network: string;
  /** Subnet of that network if the node has no spec.podCIDR; Docker chooses one if neither is set. */
  readonly podCIDR?: string;
  /** Image of the container that holds a pod's namespaces. */
  readonly sandboxImage: string;
  /** True if graftlet runs in a Pod on this machine. */
  readonly inPod: boolean;
}

const fields = ["socket", "network", "podCIDR", "sandboxImage", "inPod"];
const defaultSocket = "/var/run/docker.sock";
const defaultSandboxImage = "registry.k8s.io/pause:3.10.2";
/** The sandbox image that graftlet builds if the configured one cannot be pulled. */
export const localPauseImage = "graftlet.dev/pause:1";

/** Reads the docker provider's `providerConfig`: `socket`, `network`, `podCIDR`, `sandboxImage`, `inPod`, all optional.
 *  @throws CodedError invalid_argument, a sentence with the field and the remedy. */
export function readDockerConfig(config: unknown, nodeName: string): DockerConfig {
  const given = readConfigFields(config ?? {}, {
    provider: "docker",
    known: fields,
    write: "write `socket: unix:///var/run/docker.sock`",
  });
  const podCIDR = given.podCIDR === undefined ? undefined : parseSubnet(given.podCIDR);
  return {
    socket: given.socket === undefined ? defaultSocket : parseSocket(given.socket),
    network: given.network === undefined ? `graftlet-${nodeName}` : parseNetwork(given.network),
    sandboxImage: given.sandboxImage === undefined ? defaultSandboxImage : parseImage(given.sandboxImage),
    inPod: readInPod(given.inPod),
    ...(podCIDR !== undefined && { podCIDR }),
  };
}

function parseSocket(value: unknown): string {
  const path = socketPath(value);
  if (path === undefined)
    throw invalidField(
      `providerConfig.socket is ${JSON.stringify(value)}, not the address of a unix socket: write it as unix:///var/run/docker.sock (Docker on another machine is reached with --provider ssh).`,
    );
  return path;
}

/** @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Network/operation/NetworkCreate */
function parseNetwork(value: unknown): string {
  if (typeof value !== "string" || !/^[a-zA-Z0-9][a-zA-Z0-9_.-]+$/.test(value))
    throw invalidField(
      `providerConfig.network is ${JSON.stringify(value)}, not the name of a Docker network: write letters, digits, dashes, dots and underscores.`,
    );
  if (["host", "none", "default"].includes(value))
    throw invalidField(
      `providerConfig.network is ${JSON.stringify(value)}, which gives pods no addresses of their own: name a bridge network.`,
    );
  return value;
}

function parseSubnet(value: unknown): string {
  const [address, bits] = typeof value === "string" ? value.split("/") : [];
  if (!address || !bits || !isIPv4Prefix(address, bits))
    throw invalidField(
      `providerConfig.podCIDR is ${JSON.stringify(value)}, not an IPv4 subnet with room for pods: write it as 10.88.0.0/24.`,
    );
  return `${address}/${bits}`;
}

/** Accepts /8 to /29: a smaller subnet has no room for pods in addition to the gateway. */
function isIPv4Prefix(address: string, bits: string): boolean {
  const parts = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(address)?.slice(1).map(Number);
  if (!parts || parts.some((part) => part > 255) || !/^\d{1,2}$/.test(bits)) return false;
  return Number(bits) >= 8 && Number(bits) <= 29;
}

function parseImage(value: unknown): string {
  if (typeof value !== "string" || !/^[\w][\w.:/@-]+$/.test(value))
    throw invalidField(
      `providerConfig.sandboxImage is ${JSON.stringify(value)}, not the name of an image: write it as ${defaultSandboxImage}.`,
    );
  return value;
}
