import type { ApiClient } from "../api/client.ts";
import type { Clock } from "../lib/clock.ts";
import { codeOf, hasCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import { onAbort } from "../lib/service-group.ts";
import type { Node, NodeCondition } from "../objects.ts";
import type { Host } from "../seams/host.ts";
import type { LinkTrouble, TargetLink } from "../seams/provider.ts";
import { outOfReach, withTimes } from "./conditions.ts";
import { type NodeIdentity, attachAnnotation } from "./node-object.ts";

export interface UnreachableDeps {
  readonly host: Pick<Host, "fs">;
  readonly link: TargetLink;
  readonly client: ApiClient;
  readonly identity: NodeIdentity;
  readonly registerNode: boolean;
  readonly clock: Clock;
  readonly log: Logger;
}

/** How often an unreachable target is asked for, beside every change of the link, milliseconds. */
const askMs = 5_000;

/** Waits until the target of a node that starts can be reached: until then nothing is known of the node but that. Meanwhile
 *  its Node says so: one that nobody registered yet is made, without capacity, and unready.
 *  @throws what the target says when it can be reached and refuses to be read. */
export async function untilReachable(deps: UnreachableDeps, signal: AbortSignal): Promise<void> {
  const { host, link, clock, log } = deps;
  let told = "";
  while (!signal.aborted) {
    const changed = Promise.withResolvers<void>();
    const stop = link.onChange(() => changed.resolve());
    try {
      await host.fs.stat("/", signal);
      return;
    } catch (error) {
      const trouble = link.trouble();
      if (!trouble && !hasCode(error, "unavailable", "deadline_exceeded")) throw error;
      if (trouble && trouble.reason + trouble.message !== told) {
        await tell(deps, trouble, signal).then(
          () => (told = trouble.reason + trouble.message),
          (failure: unknown) =>
            log.warn({ err: failure, code: codeOf(failure) }, "node status was not written, will retry"),
        );
      }
      const waited = new AbortController();
      const pause = clock.sleep(askMs, waited.signal).catch(() => undefined);
      await Promise.race([pause, changed.promise, onAbort(signal, waited.signal)]);
      waited.abort();
    } finally {
      stop();
    }
  }
}

/** Writes to the node's status that nobody can work on its target, and why; makes the Node where there is none. */
export async function tell(
  deps: Pick<UnreachableDeps, "client" | "clock" | "identity" | "registerNode">,
  trouble: LinkTrouble,
  signal: AbortSignal,
): Promise<void> {
  const { client, clock, identity } = deps;
  const path = `/api/v1/nodes/${identity.nodeName}`;
  const node = await client.get<Node>(path, { signal }).catch((error: unknown) => {
    if (hasCode(error, "not_found")) return undefined;
    throw error;
  });
  const before = node?.status?.conditions ?? [];
  const conditions = withTimes(outOfReach(trouble), before, rfc3339(clock.now()));
  if (node) await client.patch(`${path}/status`, { type: "strategic", body: { status: { conditions } } }, { signal });
  else if (deps.registerNode) await client.create("/api/v1/nodes", unknownNode(identity, conditions), { signal });
}

/** A Node of which no more is known than what it is called. */
function unknownNode({ nodeName, labels, taints, providerID }: NodeIdentity, conditions: NodeCondition[]): Node {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name: nodeName,
      labels: { "kubernetes.io/hostname": nodeName, ...labels },
      annotations: { [attachAnnotation]: "true" },
    },
    spec: { ...(providerID && { providerID }), ...(taints.length > 0 && { taints: [...taints] }) },
    status: { conditions },
  };
}
