import { isProblem } from "../api/node-conditions.ts";
import type { Node, NodeCondition, NodeStatus } from "../objects.ts";
import { quantityValue } from "../pod/quantity.ts";
import type { LinkTrouble } from "../seams/provider.ts";
import type { ConditionView, NodeView } from "./messages.ts";

export interface NodeViewSource {
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
export function nodeView({ name, provider, node, running, link }: NodeViewSource): NodeView {
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
    conditions: conditions.map(conditionView),
    images: images.length,
    imageBytes: images.reduce((sum, { sizeBytes }) => sum + (sizeBytes ?? 0), 0),
    ...machineView(node?.status),
  };
}

function machineView(
  status: NodeStatus | undefined,
): Pick<NodeView, "version" | "os" | "address" | "cpus" | "memory" | "maxPods"> {
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
const configuredReason = "TargetNetworkOnly";

function conditionView({ type, status, reason = "", message = "" }: NodeCondition): ConditionView {
  const bad = isProblem({ type, status }) && reason !== configuredReason;
  return { type, status, reason, message, bad };
}
