import { checkPort } from "./field-checks.ts";
import type { NodeConfig } from "./node-config.ts";
import type { Options } from "./option-fields.ts";
import { refuse } from "./refusal.ts";

/** Address of an endpoint of the process. */
export interface Endpoint {
  readonly address: string;
  readonly port: number;
}

/** Address of the page from the settings of the process; undefined if disabled.
 *  @param setting the port's name.
 *  @throws CodedError invalid_argument for an invalid port or one that a node uses. */
export function pageFrom(
  { pagePort: port = 0, pageAddress: address = "127.0.0.1" }: Pick<Options, "pagePort" | "pageAddress">,
  nodes: readonly NodeConfig[],
  setting: string,
): Endpoint | undefined {
  return endpointAt({ address, port }, nodes, setting);
}

/** Checks the port of an endpoint of the process. @returns undefined for port 0.
 *  @param setting the port's name.
 *  @throws CodedError invalid_argument for an invalid port or one that a node uses. */
export function endpointAt(at: Endpoint, nodes: readonly NodeConfig[], setting: string): Endpoint | undefined {
  const { port } = at;
  const wrong = checkPort(true)(port);
  if (wrong !== undefined) throw refuse(setting, port, wrong);
  if (port === 0) return undefined;
  const twin = nodes.find((node) => listensOn(node).includes(port));
  if (twin) throw refuse(setting, port, `node ${twin.nodeName} listens on that port; use another one`);
  return at;
}

/** Returns the ports that a node listens on. */
export function listensOn(node: NodeConfig): readonly number[] {
  return [node.kubelet.port, node.kubelet.healthzPort].filter((port) => port !== 0);
}
