import { createHash } from "node:crypto";
import { request } from "undici";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { Service } from "../lib/service-group.ts";
import { urlWithoutSecrets } from "../lib/url-text.ts";
import type { Pod } from "../objects.ts";
import type { Complaints } from "./complaints.ts";
import { expectKind, manifestObject, unusable } from "./manifest.ts";
import type { Adopt } from "./manifest-set.ts";
import { type Fields, isFields } from "./pod-fields.ts";
import { staticPod } from "./static-pod.ts";

export interface HttpSourceDeps {
  /** KubeletConfiguration.staticPodURL. */
  readonly url: string;
  /** KubeletConfiguration.staticPodURLHeader: may hold credentials, and is never shown. */
  readonly headers: Readonly<Record<string, readonly string[]>>;
  /** KubeletConfiguration.httpCheckFrequency, milliseconds. */
  readonly everyMs: number;
  readonly nodeName: string;
  /** Takes the complete set of pods, each time the URL has given another one. */
  readonly set: (pods: readonly Pod[]) => void;
  readonly adopt: Adopt;
  readonly complaints: Complaints;
  readonly clock: Clock;
}

/** The kubelet's numbers. */
const answerMs = 10_000;
const longestBytes = 10 << 20;

/** The source of static pods at a URL: one pod, or a PodList. An answer that cannot be used changes nothing.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/#pods-created-via-http */
export function createHttpSource(deps: HttpSourceDeps): Service {
  const { url, everyMs, set, complaints, clock } = deps;
  // Of a URL with a password in it only the rest is shown.
  const shown = urlWithoutSecrets(url) ?? "staticPodURL";
  let taken: string | undefined;
  /** The answer that could not be used when it came last. */
  let refused: { readonly digest: string; readonly why: unknown } | undefined;
  const podsOf = (digest: string, body: Buffer): readonly Pod[] => {
    if (refused?.digest === digest) throw refused.why;
    try {
      return podsIn(deps, manifestObject(body.toString("utf8")), taken === undefined);
    } catch (why) {
      refused = { digest, why };
      throw why;
    }
  };
  const look = async (signal: AbortSignal) => {
    const body = await fetched(deps, clock.within(answerMs, signal));
    const digest = createHash("sha256").update(body).digest("hex");
    if (body.length === 0) {
      if (digest !== taken) set([]);
      taken = digest;
      throw unusable("it answers with nothing: no pod is taken from there");
    }
    if (digest === taken) return;
    const pods = podsOf(digest, body);
    taken = digest;
    set(pods);
  };
  return {
    name: "pods of a URL",
    async run(signal) {
      while (!signal.aborted) {
        try {
          await look(signal);
          complaints.settle(shown);
        } catch (error) {
          if (!signal.aborted) complaints.tell(shown, messageOf(error));
        }
        await clock.sleep(everyMs, signal).catch(() => undefined);
      }
    },
  };
}

async function fetched({ url, headers }: HttpSourceDeps, signal: AbortSignal): Promise<Buffer> {
  const given = Object.fromEntries(Object.entries(headers).map(([name, values]) => [name, [...values]]));
  try {
    const { statusCode, body } = await request(url, { headers: { ...basic(url), ...given }, signal });
    if (statusCode !== 200) {
      await body.dump();
      throw new CodedError("unavailable", `it answers with status ${statusCode} in place of 200`);
    }
    return await bounded(body);
  } catch (error) {
    if (error instanceof CodedError) throw error;
    throw new CodedError("unavailable", `it does not answer: ${messageOf(error)}`, { cause: error });
  }
}

/** A URL may hold a user and a password. */
function basic(url: string): Record<string, string> {
  const { username = "", password = "" } = URL.parse(url) ?? {};
  if (!username) return {};
  const pair = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { authorization: `Basic ${Buffer.from(pair).toString("base64")}` };
}

async function bounded(body: AsyncIterable<Buffer>): Promise<Buffer> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of body) {
    length += part.length;
    if (length > longestBytes) throw unusable(`its answer is longer than ${longestBytes} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

/** One bad pod spoils its list: what the others should be is not known for sure. */
function podsIn({ url, nodeName, adopt }: HttpSourceDeps, object: Fields, first: boolean): readonly Pod[] {
  const podOf = (one: Fields) => {
    const found = staticPod(one, { nodeName, of: { url } });
    return first ? adopt(found) : found.pod;
  };
  if (object["kind"] !== "PodList") {
    expectKind(object, "Pod");
    return [podOf(object)];
  }
  expectKind(object, "PodList");
  const items = object["items"] ?? [];
  if (!Array.isArray(items)) throw unusable("items of its PodList is no list");
  const pods = items.map((item: unknown, index) => {
    if (!isFields(item)) throw unusable(`items[${index}] of its PodList is no pod`);
    try {
      return podOf(item);
    } catch (cause) {
      throw unusable(`items[${index}] of its PodList: ${messageOf(cause)}`, { cause });
    }
  });
  const uids = pods.map(({ metadata }) => metadata.uid);
  const again = uids.findIndex((uid, index) => uids.indexOf(uid) < index);
  if (again >= 0) throw unusable(`items[${again}] of its PodList: metadata.uid: another of its pods has it too`);
  return pods;
}
