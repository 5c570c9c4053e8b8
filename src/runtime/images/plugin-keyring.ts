import { createHash } from "node:crypto";
import type { CredentialProvider } from "../../config/credential-providers.ts";
import { abortError } from "../../lib/errors.ts";
import type { ClockAndLog } from "../../lib/log.ts";
import { untilAborted } from "../../lib/runnables.ts";
import { createSingleFlight } from "../../lib/single-flight.ts";
import type { Pod } from "../../objects.ts";
import type { ServiceAccounts } from "../../api/objects.ts";
import type { TokenSource } from "../../api/tokens.ts";
import type { PluginResponse, RunPlugin } from "./credential-plugin.ts";
import type { Logins } from "./docker-config.ts";
import { keyringOf, locationMatches, type Keyring } from "./keyring.ts";
import type { PodKeyring } from "./pod-credentials.ts";
import type { PullAccount } from "./pull-records.ts";

export interface PluginKeyringDeps extends ClockAndLog {
  readonly plugins: readonly CredentialProvider[];
  readonly run: RunPlugin;
  readonly accounts: ServiceAccounts;
  readonly tokens: TokenSource;
}

/** Credentials from credential provider plugins, as in the kubelet: all plugins that match an image run, and failing ones are skipped.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/ */
export function createPluginKeyring(deps: PluginKeyringDeps): PodKeyring {
  const { plugins, log } = deps;
  const clients = plugins.map((plugin) => ({ plugin, ask: createPluginClient(plugin, deps) }));
  return async (repository, pod, signal) => {
    const keyrings = await Promise.all(
      clients.map(({ plugin, ask }) =>
        ask(repository, pod, signal).catch((err: unknown): Keyring => {
          if (signal.aborted) throw abortError(signal);
          const { namespace, name } = pod.metadata;
          log.error(
            { err, provider: plugin.name, image: repository, pod: `${namespace}/${name}` },
            "Failed to provide credentials for image",
          );
          return [];
        }),
      ),
    );
    return keyrings.flat();
  };
}

/** The service account on whose behalf a plugin runs. */
interface PluginIdentity {
  readonly account: PullAccount;
  readonly token: string;
  readonly tokenHash: string;
  /** In the order of the configuration. */
  readonly annotations: Readonly<Record<string, string>>;
}

interface CachedLogins {
  readonly logins: Logins;
  /** Milliseconds since the epoch. */
  readonly until: number;
}

const purgeMs = 15 * 60_000;

function createPluginClient(plugin: CredentialProvider, deps: PluginKeyringDeps): PodKeyring {
  const { run, clock } = deps;
  const cache = new Map<string, CachedLogins>();
  const once = createSingleFlight<PluginResponse>();
  let purgedAt = clock.now();

  const lookUp = (keys: readonly string[]): Logins | undefined => {
    const now = clock.now();
    if (now > purgedAt + purgeMs) {
      for (const [key, { until }] of cache) if (now > until) cache.delete(key);
      purgedAt = now;
    }
    return keys.map((key) => cache.get(key)).find((one) => one && now <= one.until)?.logins;
  };

  return async (image, pod, signal) => {
    if (!plugin.matchImages.some((location) => locationMatches(location, image))) return [];
    const identity = await identityFor(plugin, deps, pod, signal);
    if (identity === "nobody") return [];
    const source = identity && { account: identity.account };
    const keys = cacheKeys(plugin, image, identity);
    const known = lookUp(Object.values(keys));
    if (known) return keyringOf(known, source);
    const flight = JSON.stringify([image, identity?.tokenHash, identity?.annotations]);
    const onBehalf = identity && {
      serviceAccountToken: identity.token,
      serviceAccountAnnotations: identity.annotations,
    };
    // Other pods may wait for the same response: it is not aborted together with this pod.
    const response = await untilAborted(
      once(flight, () => run(plugin, { image, ...onBehalf })),
      signal,
    );
    if (identity && plugin.token?.cacheType !== "Token") rejectTokenAsPassword(response, identity.token);
    const cacheMs = response.cacheMs ?? plugin.defaultCacheMs;
    if (cacheMs !== 0)
      cache.set(keys[response.cacheKeyType], { logins: response.logins, until: clock.now() + cacheMs });
    return keyringOf(response.logins, source);
  };
}

/** Cache keys, by the cache key type of the response. */
function cacheKeys(
  { token }: CredentialProvider,
  image: string,
  asker: PluginIdentity | undefined,
): Readonly<Record<PluginResponse["cacheKeyType"], string>> {
  const name = asker && [asker.account, asker.annotations, ...(token?.cacheType === "Token" ? [asker.tokenHash] : [])];
  const key = (base: string) => JSON.stringify([base, name]);
  const [registry = ""] = image.split("/");
  return { Image: key(image), Registry: key(registry), Global: key("<global>") };
}

/** The service account that a plugin runs for: undefined if it runs for the node, `nobody` if it does not run for this pod. */
async function identityFor(
  { token: tokenConfig }: CredentialProvider,
  { accounts, tokens }: PluginKeyringDeps,
  pod: Pod,
  signal: AbortSignal,
): Promise<PluginIdentity | undefined | "nobody"> {
  if (!tokenConfig) return undefined;
  const name = pod.spec.serviceAccountName;
  if (!name) return tokenConfig.requireServiceAccount ? "nobody" : undefined;
  const { namespace } = pod.metadata;
  const { metadata } = await accounts.serviceAccount(namespace, name, signal);
  const given = metadata.annotations ?? {};
  if (tokenConfig.requiredAnnotations.some((key) => !Object.hasOwn(given, key))) return "nobody";
  const requested = [...tokenConfig.requiredAnnotations, ...tokenConfig.optionalAnnotations];
  const annotations = Object.fromEntries(
    requested.filter((key) => Object.hasOwn(given, key)).map((key) => [key, given[key] ?? ""]),
  );
  const request = { audience: tokenConfig.audience, expirationSeconds: tokenSeconds, accountUid: metadata.uid };
  const { token } = await tokens.token(pod, request, signal);
  const account = { uid: metadata.uid, namespace, name };
  return { account, token, tokenHash: hashToken(token), annotations };
}

/** Requested token lifetime: the TokenRequest default. */
const tokenSeconds = 60 * 60;

/** A response with the token as password must not be cached longer than the token is valid. */
function rejectTokenAsPassword({ logins }: PluginResponse, token: string): void {
  if (logins.some(([, { password }]) => password === token))
    throw new Error(
      "credential provider plugin returned the service account token as the password which is not allowed when service account cache type is not set to 'Token'",
    );
}

function hashToken(token: string): string {
  return createHash("sha256").update(token).digest("hex");
}
