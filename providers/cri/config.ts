import type { Sharing } from "../../src/seams/provider.ts";
import { readConfigFields, invalidField, socketPath } from "../config-fields.ts";
import { readInPod } from "../local/in-pod.ts";

export interface CriConfig {
  /** Absolute path of the runtime's socket. */
  readonly runtimeSocket: string;
  /** Absolute path of the image service's socket. */
  readonly imageSocket: string;
  readonly sharing: Sharing;
  /** True if graftlet runs in a Pod on this machine. */
  readonly inPod: boolean;
}

/** Endpoints of KubeletConfiguration; the provider's own fields take precedence. */
export interface CriDefaults {
  readonly containerRuntimeEndpoint: string;
  /** Endpoint of the image service; empty if it is the same as the runtime's. */
  readonly imageServiceEndpoint: string;
}

const fields = ["endpoint", "imageEndpoint", "sharing", "inPod"];

/** Reads the cri provider's `providerConfig`: `endpoint`, `imageEndpoint`, `sharing`, `inPod`, all optional.
 *  @throws CodedError invalid_argument, a sentence with the field and the remedy. */
export function readCriConfig(
  config: unknown,
  { containerRuntimeEndpoint, imageServiceEndpoint }: CriDefaults,
): CriConfig {
  const given = readConfigFields(config ?? {}, {
    provider: "cri",
    known: fields,
    write: "write `endpoint: unix:///run/containerd/containerd.sock`",
  });
  const runtimeSocket =
    given.endpoint === undefined
      ? parseSocket("containerRuntimeEndpoint", containerRuntimeEndpoint)
      : parseSocket("providerConfig.endpoint", given.endpoint);
  const imageSocket =
    given.imageEndpoint !== undefined
      ? parseSocket("providerConfig.imageEndpoint", given.imageEndpoint)
      : imageServiceEndpoint === "" || given.endpoint !== undefined
        ? runtimeSocket
        : parseSocket("imageServiceEndpoint", imageServiceEndpoint);
  return { runtimeSocket, imageSocket, sharing: parseSharing(given.sharing), inPod: readInPod(given.inPod) };
}

/** Reads an endpoint; like the kubelet's, it may be a bare path. */
function parseSocket(field: string, value: unknown): string {
  const path = socketPath(value);
  if (path === undefined)
    throw invalidField(
      `${field} is ${JSON.stringify(value)}, not the address of a unix socket: write it as unix:///run/containerd/containerd.sock.`,
    );
  return path;
}

function parseSharing(value: unknown): Sharing {
  if (value === undefined) return "exclusive";
  if (value === "exclusive" || value === "shared") return value;
  throw invalidField(`providerConfig.sharing is ${JSON.stringify(value)}: write exclusive or shared.`);
}
