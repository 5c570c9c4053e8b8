import type { ApiClient } from "../api/client.ts";
import type { NodeConfig } from "../config/node-config.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { Service } from "../lib/service-group.ts";
import { staticSources } from "./settings.ts";
import type { Pod } from "../objects.ts";
import type { EventSink, PodCache, PodUpdate, SourceName } from "../pipeline.ts";
import { adoptRunning } from "../sources/adoption.ts";
import { createApiServerSource } from "../sources/apiserver.ts";
import { createComplaints } from "../sources/complaints.ts";
import { createFileSource } from "../sources/file.ts";
import { createHttpSource } from "../sources/http.ts";
import type { Adopt } from "../sources/manifest-set.ts";
import { createPodConfig } from "../sources/pod-config.ts";

export interface SourcesDeps {
  readonly config: NodeConfig;
  /** Undefined where there is no API server. */
  readonly client: ApiClient | undefined;
  readonly cache: PodCache;
  readonly events: EventSink;
  readonly emit: (update: PodUpdate) => void;
  /** Resolves when pods of the API server may be taken in. */
  readonly after: (signal: AbortSignal) => Promise<void>;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface Sources {
  /** The sources that this node has. */
  readonly names: readonly SourceName[];
  readonly running: readonly Service[];
  /** True once each of them has spoken. */
  allSeen(): boolean;
}

/** Where a node's pods come from. Each source says what it wants as a whole, and none takes away what another wants. */
export function composeSources(deps: SourcesDeps): Sources {
  const { config, client, cache, events, clock, log } = deps;
  const { kubelet, nodeName } = config;
  const names: readonly SourceName[] = [...(client ? ["api" as const] : []), ...staticSources(config)];
  const podConfig = createPodConfig({ expected: names, emit: deps.emit, events, clock });
  const setting = (source: SourceName) => (pods: readonly Pod[]) => podConfig.set(source, pods);
  const common = { nodeName, clock, log };
  const adopt: Adopt = (found) => adoptRunning(cache, found);
  const complaining = () => ({ ...common, adopt, complaints: createComplaints({ nodeName, events, log }) });
  const { staticPodPath: path, staticPodURL: url, staticPodURLHeader: headers } = kubelet;
  return {
    names,
    running: [
      ...(path
        ? [createFileSource({ ...complaining(), path, everyMs: kubelet.fileCheckFrequency, set: setting("file") })]
        : []),
      ...(url
        ? [
            createHttpSource({
              ...complaining(),
              url,
              headers,
              everyMs: kubelet.httpCheckFrequency,
              set: setting("http"),
            }),
          ]
        : []),
      ...(client ? [createApiServerSource({ ...common, client, set: setting("api"), after: deps.after })] : []),
    ],
    allSeen: podConfig.allSeen,
  };
}
