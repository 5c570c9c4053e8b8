import type { NodeConfig } from "../config/node-config.ts";
import { CodedError } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { containerLogLimits } from "../kubelet/settings.ts";
import type { ProviderFactory, Target } from "../seams/provider.ts";

export interface OpenTargetDeps extends ClockAndLog {
  readonly config: NodeConfig;
  /** Provider factories, by the values of `--provider`. */
  readonly providers: Readonly<Record<string, ProviderFactory>>;
  /** Headers for the next call to a CRI runtime. */
  readonly callHeaders?: () => Readonly<Record<string, string>>;
}

/** Opens a node's target. @throws CodedError invalid_argument, one sentence, for an unknown provider; errors of
 *  the provider. */
export async function openTarget({ config, providers, callHeaders, clock, log }: OpenTargetDeps): Promise<Target> {
  const { kubelet, nodeName } = config;
  const provider = providers[config.provider];
  if (!provider)
    throw new CodedError(
      "invalid_argument",
      `--provider ${JSON.stringify(config.provider)} is not known: use one of ${Object.keys(providers).join(", ")}`,
    );
  return provider({
    config: config.providerConfig,
    containerRuntimeEndpoint: kubelet.containerRuntimeEndpoint,
    imageServiceEndpoint: kubelet.imageServiceEndpoint,
    requestTimeoutMs: kubelet.runtimeRequestTimeout,
    containerLogs: containerLogLimits(config),
    nodeName,
    ...(callHeaders && { callHeaders }),
    clock,
    log,
  });
}
