import { isProblem } from "../api/node-conditions.ts";
import type { Node, NodeCondition, NodeStatus } from "../objects.ts";
import { quantityValue } from "../pod/quantity.ts";
import type { LinkTrouble } from "../seams/provider.ts";
import type { ConditionShown, NodeShown } from "./messages.ts";

export interface ShownOf {
  readonly name: string;
  readonly provider: string;
  /** Undefined while the Node is unknown. */
  readonly node: Node | undefined;
  /** True while the node runs on its target. */
  readonly running: boolean;
  /** The link's failure; `local` if the target is this machine. */
  readonly link: LinkTrouble | "up" | "local" | "unknown";
}

/** Builds the page's view of a Node. Pure. */
export function nodeShown({ name, provider, node, running, link }: ShownOf): NodeShown {
  const { conditions = [], images = [] } = node?.status ?? {};
  const ready = conditions.find(({ type }) => type === "Ready");
  const isReady = ready?.status === "True";
  const [way, trouble] = typeof link === "string" ? [link, undefined] : [link.reason, link.message];
  return {
    name,
    provider,
    state:
      isReady && running && trouble === undefined
        ? "Ready"
        : running || ready?.status === "False"
          ? "NotReady"
          : "Starting",
    why: trouble ?? (isReady ? undefined : ready?.message) ?? "",
    link: way,
    conditions: conditions.map(conditionShown),
    images: images.length,
    imageBytes: images.reduce((sum, { sizeBytes }) => sum + (sizeBytes ?? 0), 0),
    ...machineShown(node?.status),
  };
}

function machineShown(
  status: NodeStatus | undefined,
): Pick<NodeShown, "version" | "os" | "address" | "cpus" | "memory" | "maxPods"> {
  const { kubeletVersion: version = "", osImage: os = "" } = status?.nodeInfo ?? {};
  const size = (resource: string) => quantityValue(status?.capacity?.[resource] ?? "0");
  return {
    version,
    os,
    address: status?.addresses?.find(({ type }) => type === "InternalIP")?.address ?? "",
    cpus: size("cpu"),
    memory: size("memory"),
    maxPods: size("pods"),
  };
}

/** Condition reason that reflects a setting and not a problem. */
const chosen = "NetworkOfTheTarget";

function conditionShown({ type, status, reason = "", message = "" }: NodeCondition): ConditionShown {
  const bad = isProblem({ type, status }) && reason !== chosen;
  return { type, status, reason, message, bad };
}
