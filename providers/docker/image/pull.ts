import type { AuthConfig } from "../../../src/gen/cri.ts";
import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError, codeOf, messageOf, throwIfAborted } from "../../../src/lib/errors.ts";
import type { PullProgress } from "../../../src/seams/runtime.ts";
import { requestStream } from "../client/response-stream.ts";
import { jsonLines } from "../client/json-lines.ts";
import type { DockerParts } from "../parts.ts";
import { pullQuery } from "./pull-query.ts";

export interface PullOptions {
  /** Name with tag or digest; `latest` without either. */
  readonly image: string;
  readonly auth?: AuthConfig | undefined;
  readonly onProgress?: ((progress: PullProgress) => void) | undefined;
}

/** Timeout without data from the registry, milliseconds: dockershim's image-pull-progress-deadline. */
const progressTimeoutMs = 60_000;

/** Pulls an image, until the signal aborts or the registry sends nothing for too long.
 *  @throws CodedError with the image's name in its message; not_found if no registry has it. */
export async function pull(
  { docker, host, clock }: Pick<DockerParts, "docker" | "host" | "clock">,
  { image, auth, onProgress }: PullOptions,
  signal: AbortSignal,
): Promise<void> {
  throwIfAborted(signal);
  const query = pullQuery(image);
  const tracker = createPullTracker();
  using watch = watchProgress(clock, tracker.idle);
  try {
    await docker.call(
      async (engine, abortSignal) => {
        const response = await requestStream(engine, {
          method: "POST",
          path: "/images/create",
          query,
          headers: registryAuth(auth),
          signal: abortSignal,
        });
        for await (const message of jsonLines(response, host)) {
          watch.touch();
          handleMessage(message, tracker.add);
          onProgress?.(tracker.progress());
        }
      },
      AbortSignal.any([signal, watch.signal]),
      "none",
    );
  } catch (error) {
    throwIfAborted(signal);
    throw pullError(image, error);
  }
}

/** Handles one message of the response. Once the response has begun, the daemon reports failures in messages, some with an HTTP
 *  status. */
function handleMessage(message: PullMessage, add: (message: PullMessage) => void): void {
  const { error, errorDetail } = message;
  if (error === undefined && errorDetail === undefined) return add(message);
  const words = errorDetail?.message ?? error ?? "unknown error";
  if (errorDetail?.code === undefined) throw new CodedError("unknown", words);
  throw Object.assign(new Error(words), { statusCode: errorDetail.code });
}

/** Creates the error of a failed pull; adds the image's name to the message if it is missing there. */
function pullError(image: string, error: unknown): CodedError {
  const words = messageOf(error);
  const message = words.includes(image) ? words : `failed to pull image "${image}": ${words}`;
  return new CodedError(codeOf(error), message, { cause: error });
}

function watchProgress(clock: Clock, idle: () => boolean) {
  const controller = new AbortController();
  let lastMessageAt = clock.monotonic();
  const check = () => {
    if (idle()) lastMessageAt = clock.monotonic();
    const leftMs = lastMessageAt + progressTimeoutMs - clock.monotonic();
    if (leftMs > 0) timer = clock.after(leftMs, check);
    else
      controller.abort(
        new CodedError("deadline_exceeded", `the registry has sent nothing for ${progressTimeoutMs / 1000} seconds`),
      );
  };
  let timer = clock.after(progressTimeoutMs, check);
  return {
    /** Aborts with `deadline_exceeded` if the registry has sent nothing for too long. */
    signal: controller.signal,
    touch(): void {
      lastMessageAt = clock.monotonic();
    },
    [Symbol.dispose](): void {
      timer.cancel();
    },
  };
}

/** Returns the header with the registry credentials of one call; empty without credentials.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/#section/Authentication */
export function registryAuth(auth: AuthConfig | undefined): Readonly<Record<string, string>> {
  if (!auth) return {};
  const { username, password } = credentialsOf(auth);
  const fields = {
    username,
    password,
    serveraddress: auth.serverAddress,
    identitytoken: auth.identityToken,
    registrytoken: auth.registryToken,
  };
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== ""));
  if (Object.keys(given).length === 0) return {};
  // The daemon expects URL-safe base64 with padding, which Node omits.
  const text = Buffer.from(JSON.stringify(given)).toString("base64").replaceAll("+", "-").replaceAll("/", "_");
  return { "X-Registry-Auth": text };
}

/** Returns user name and password. `auth` is base64 of `username:password`, an alternative to the separate fields. */
function credentialsOf({ username, password, auth }: AuthConfig): { username: string; password: string } {
  if (username !== "" || auth === "") return { username, password };
  const decoded = Buffer.from(auth, "base64").toString();
  const colon = decoded.indexOf(":");
  return colon < 0
    ? { username: decoded, password: "" }
    : { username: decoded.slice(0, colon), password: decoded.slice(colon + 1) };
}

/** A line of the daemon's response to a pull.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Image/operation/ImageCreate */
interface PullMessage {
  readonly status?: string;
  /** Short layer ID, or the tag. */
  readonly id?: string;
  readonly progressDetail?: { readonly current?: number; readonly total?: number };
  readonly error?: string;
  readonly errorDetail?: { readonly code?: number; readonly message?: string };
}

interface Layer {
  readonly stage: Stage;
  readonly bytes: number;
  /** Undefined until the download begins. */
  readonly total?: number;
}

type Stage = "waiting" | "fetching" | "fetched" | "extracting" | "done";

/** The daemon's status texts, the only indication of a layer's stage. */
const stages: Readonly<Record<string, Stage>> = {
  Waiting: "waiting",
  "Pulling fs layer": "fetching",
  Downloading: "fetching",
  "Verifying Checksum": "fetched",
  "Download complete": "fetched",
  Extracting: "extracting",
  "Pull complete": "done",
  "Already exists": "done",
};

/** Maximum number of tracked layers: an image has at most 127, and each message sums up all of them. */
const maxLayers = 1_000;

/** Sums up a pull's messages. Byte counts are of the compressed layers. */
export function createPullTracker() {
  const layers = new Map<string, Layer>();
  return {
    add({ status = "", id, progressDetail }: PullMessage): void {
      const stage = stages[status];
      if (id === undefined || stage === undefined) return;
      if (layers.size >= maxLayers && !layers.has(id)) return;
      layers.set(id, nextLayer(layers.get(id), stage, status === "Downloading" ? progressDetail : undefined));
    },
    progress: () => progressOf([...layers.values()]),
    /** True while no data is expected from the registry, because layers are being unpacked or wait for other pulls. Engines 25 to
     *  27 with containerd's image store report nothing while they unpack; then all unfinished layers have been fetched. */
    idle(): boolean {
      const now = new Set([...layers.values()].map(({ stage }) => stage));
      return now.has("extracting") || ((now.has("waiting") || now.has("fetched")) && !now.has("fetching"));
    },
  };
}

/** A fetched layer has all of its bytes, even if the last message reported fewer. */
function nextLayer(known: Layer | undefined, stage: Stage, detail: PullMessage["progressDetail"]): Layer {
  const total = detail?.total ?? known?.total;
  const fetched = stage !== "waiting" && stage !== "fetching";
  const bytes = fetched ? (total ?? 0) : (detail?.current ?? known?.bytes ?? 0);
  return { stage, bytes, ...(total !== undefined && { total }) };
}

function progressOf(layers: readonly Layer[]): PullProgress {
  const known = layers.every(({ stage, total }) => total !== undefined || stage === "done");
  const sum = (numbers: readonly number[]) => numbers.reduce((all, each) => all + each, 0);
  return {
    bytes: sum(layers.map(({ bytes }) => bytes)),
    ...(known && layers.length > 0 && { totalBytes: sum(layers.map(({ total }) => total ?? 0)) }),
    layers: layers.length,
    layersDone: layers.filter(({ stage }) => stage === "done").length,
  };
}
