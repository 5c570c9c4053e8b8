import type { ApiClient } from "../api/client.ts";
import type { NodeConfig } from "../config/node-config.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { Service } from "../lib/service-group.ts";
import type { Pod } from "../objects.ts";
import type { EventSink, PodUpdate, SourceName } from "../pipeline.ts";
import { adoptRunning } from "../sources/adoption.ts";
import { createApiServerSource } from "../sources/apiserver.ts";
import { createManifestErrors } from "../sources/manifest-errors.ts";
import { createFileSource } from "../sources/file.ts";
import { createHttpSource } from "../sources/http.ts";
import type { Adopt } from "../sources/manifest-set.ts";
import { createPodConfig } from "../sources/pod-config.ts";
import type { Handed } from "./wiring.ts";

export interface SourcesDeps extends Handed<"sources"> {
  readonly config: NodeConfig;
  /** Undefined without an API server. */
  readonly client: ApiClient | undefined;
  readonly events: EventSink;
  readonly emit: (update: PodUpdate) => void;
  /** Resolves when pods of the API server may be listed. */
  readonly after: (signal: AbortSignal) => Promise<void>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Creates the configured pod sources of a node. Each reports its complete set of pods, and none removes pods of another
 *  source. */
export function composeSources(deps: SourcesDeps): readonly Service[] {
  const { config, client, podCache, sourcesReady, emit, events, clock, log } = deps;
  const { kubelet, nodeName } = config;
  const podConfig = createPodConfig({ spoken: sourcesReady, emit, events, clock });
  const setting = (source: SourceName) => (pods: readonly Pod[]) => podConfig.set(source, pods);
  const common = { nodeName, clock, log };
  const adopt: Adopt = (found) => adoptRunning(podCache, found);
  const complaining = () => ({ ...common, adopt, complaints: createManifestErrors({ nodeName, events, log }) });
  const { staticPodPath: path, staticPodURL: url, staticPodURLHeader: headers } = kubelet;
  const { fileCheckFrequency, httpCheckFrequency } = kubelet;
  const running: Service[] = [];
  if (path)
    running.push(createFileSource({ ...complaining(), path, everyMs: fileCheckFrequency, set: setting("file") }));
  if (url)
    running.push(
      createHttpSource({ ...complaining(), url, headers, everyMs: httpCheckFrequency, set: setting("http") }),
    );
  if (client) running.push(createApiServerSource({ ...common, client, set: setting("api"), after: deps.after }));
  return running;
}
