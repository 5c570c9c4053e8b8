import { createHash } from "node:crypto";
import { request } from "undici";
import { CodedError, hasCode, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Runnable } from "../lib/runnables.ts";
import { urlWithoutSecrets } from "../lib/url-text.ts";
import type { Pod } from "../objects.ts";
import { maxManifestBytes, unusable } from "./manifest.ts";
import { openManifestReader } from "./manifest-reader.ts";
import type { ManifestSetDeps } from "./manifest-set.ts";

export interface HttpSourceDeps extends ManifestSetDeps, ClockAndLog {
  /** KubeletConfiguration.staticPodURL. */
  readonly url: string;
  /** KubeletConfiguration.staticPodURLHeader: may contain credentials, and is never shown. */
  readonly headers: Readonly<Record<string, readonly string[]>>;
  /** KubeletConfiguration.httpCheckFrequency, milliseconds. */
  readonly everyMs: number;
  /** Receives the complete set of pods at each change. */
  readonly set: (pods: readonly Pod[]) => void;
}

/** Timeout of a request, milliseconds: the kubelet's. */
const requestTimeoutMs = 10_000;

/** Source of static pods at a URL: one pod, or a PodList. An unusable response changes nothing.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/#pods-created-via-http */
export function createHttpSource(deps: HttpSourceDeps): Runnable {
  const { url, nodeName, everyMs: intervalMs, set, adopt, complaints, clock, log } = deps;
  // A password in the URL is never logged.
  const shown = urlWithoutSecrets(url) ?? "staticPodURL";
  let currentDigest: string | undefined;
  /** The last response, if it was unusable. */
  let refused: { readonly digest: string; readonly why: unknown } | undefined;
  const podsOf = async (digest: string, body: Buffer, signal: AbortSignal): Promise<readonly Pod[]> => {
    if (refused?.digest === digest) throw refused.why;
    try {
      const text = body.toString("utf8");
      await using reader = openManifestReader(clock);
      const found = await reader.read({ text, origin: { nodeName, of: { url } }, lists: true }, signal);
      return found.map((one) => (currentDigest === undefined ? adopt(one) : one.pod));
    } catch (why) {
      if (hasCode(why, "invalid_argument")) refused = { digest, why };
      throw why;
    }
  };
  const poll = async (signal: AbortSignal) => {
    const body = await fetchManifest(deps, clock.within(requestTimeoutMs, signal));
    const digest = createHash("sha256").update(body).digest("hex");
    if (body.length === 0) {
      if (digest !== currentDigest) set([]);
      currentDigest = digest;
      throw unusable("the response is empty: no pod is read from it");
    }
    if (digest === currentDigest) return;
    const pods = await podsOf(digest, body, signal);
    currentDigest = digest;
    set(pods);
  };
  return runPeriodically({ name: "pods of a URL", intervalMs, clock, log }, async (signal) => {
    try {
      await poll(signal);
      complaints.clear(shown);
    } catch (error) {
      if (!signal.aborted) complaints.report(shown, messageOf(error));
    }
  });
}

async function fetchManifest({ url, headers }: HttpSourceDeps, signal: AbortSignal): Promise<Buffer> {
  const given = Object.fromEntries(Object.entries(headers).map(([name, values]) => [name, [...values]]));
  try {
    const { statusCode, body } = await request(url, { headers: { ...basic(url), ...given }, signal });
    if (statusCode !== 200) {
      await body.dump();
      throw new CodedError("unavailable", `it responds with status ${statusCode} instead of 200`);
    }
    return await readBounded(body);
  } catch (error) {
    if (error instanceof CodedError) throw error;
    throw new CodedError("unavailable", `it does not respond: ${messageOf(error)}`, { cause: error });
  }
}

/** Authorization header for the user and password in a URL; empty if it has none. */
function basic(url: string): Record<string, string> {
  const { username = "", password = "" } = URL.parse(url) ?? {};
  if (!username) return {};
  const pair = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { authorization: `Basic ${Buffer.from(pair).toString("base64")}` };
}

async function readBounded(body: AsyncIterable<Buffer>): Promise<Buffer> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of body) {
    length += part.length;
    if (length > maxManifestBytes)
      throw unusable(`the response is longer than ${maxManifestBytes} bytes: make it smaller`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}
