import type { Image, PullImageRequest } from "../gen/cri.ts";
import { coalesce } from "../lib/coalesce.ts";
import { throwIfAborted, hasCode } from "../lib/errors.ts";
import type { Logger, ClockAndLog } from "../lib/log.ts";
import { canonicalImageName, parseImageName } from "../pod/image-name.ts";
import type { HostFs } from "../seams/host.ts";
import type { Images } from "../seams/runtime.ts";
import { replaceFile } from "../host/replace-file.ts";
import { entriesOf, recordIn } from "../lib/record.ts";
import { ownDirectory } from "../host/layout.ts";

export interface PulledImagesDeps extends ClockAndLog {
  readonly runtime: Pick<Images, "listImages" | "imageStatus" | "pullImage">;
  readonly fs: Pick<HostFs, "readFile" | "apply">;
  readonly rootDir: string;
}

/** On a shared runtime, the image names that this node pulled. They are recorded in the node's root directory and survive restarts. */
export interface PulledImages {
  /** The runtime's image service, which records pulls. */
  readonly images: Pick<Images, "imageStatus" | "pullImage">;
  /** All names of an image, tags first, if this node pulled each of them for it; otherwise undefined. */
  namesOf(image: Image): readonly string[] | undefined;
  /** Reconciles the record with a list of all images: names that were removed or moved to another image no longer belong to this node;
   *  names whose pull an earlier process started, and did not see complete, now do. @param listedAt Clock.monotonic() before the listing
   *  began.
   *  @throws if the target cannot be reached. */
  reconcile(images: readonly Image[], listedAt: number, signal: AbortSignal): Promise<void>;
}

interface OwnedName {
  readonly id: string;
  /** Clock.monotonic() when it was recorded. */
  readonly recordedAt: number;
}

const writeTimeoutMs = 30_000;

/** @see docs/providers.md "Whose images are removed" */
export function createPulledImages(deps: PulledImagesDeps): PulledImages {
  const { runtime, log } = deps;
  const names = createOwnedNames(deps);
  const inProgress = new Map<string, number>();

  /** @returns names in the same repository that this node does not own; undefined if the wanted one is among them. */
  const beginPull = async (wanted: string, signal: AbortSignal): Promise<readonly string[] | undefined> => {
    await names.load(signal);
    const earlier = names.begun.get(wanted);
    if (earlier) return earlier;
    const images = await runtime.listImages(signal);
    const others = images.flatMap((image) =>
      namesIn(image).filter((name) => repositoryOf(name) === repositoryOf(wanted) && !names.isOwn(image, name)),
    );
    if (others.includes(wanted) && !names.begun.has(wanted)) return undefined;
    names.begun.set(wanted, names.begun.get(wanted) ?? others);
    await names.save();
    return others;
  };

  const pull = async (
    request: PullImageRequest,
    signal: AbortSignal,
    ...more: Parameters<Images["pullImage"]> extends [unknown, unknown, ...infer Rest] ? Rest : never
  ): Promise<string> => {
    const wanted = canonicalImageName(request.image?.image ?? "");
    const others = await beginPull(wanted, signal).catch((error: unknown) => {
      throwIfAborted(signal);
      log.warn({ err: error, image: wanted }, "cannot record image pull; garbage collection will not remove the image");
      return undefined;
    });
    if (!others) return runtime.pullImage(request, signal, ...more);
    inProgress.set(wanted, (inProgress.get(wanted) ?? 0) + 1);
    try {
      const reference = await runtime.pullImage(request, signal, ...more);
      const image = request.image && (await runtime.imageStatus(request.image, signal).catch(() => undefined));
      if (!image) return reference;
      names.take(wanted, others, image);
      if (inProgress.get(wanted) === 1) names.begun.delete(wanted);
      await names.save().catch((error: unknown) => {
        log.warn({ err: error, image: wanted }, "cannot record completed image pull yet");
      });
      return reference;
    } finally {
      const left = (inProgress.get(wanted) ?? 1) - 1;
      if (left === 0) inProgress.delete(wanted);
      else inProgress.set(wanted, left);
    }
  };

  return {
    images: { imageStatus: (image, signal) => runtime.imageStatus(image, signal), pullImage: pull },
    namesOf(image) {
      const all = namesIn(image);
      return all.length > 0 && all.every((name) => names.isOwn(image, name)) ? all : undefined;
    },
    async reconcile(images, listedAt, signal) {
      await names.load(signal);
      if (names.settle(images, listedAt, (name) => inProgress.has(name))) await names.save();
    },
  };
}

/** Image names that this node owns, and their record. */
function createOwnedNames({ fs, rootDir, clock, log }: PulledImagesDeps) {
  const owned = new Map<string, OwnedName>();
  /** Names whose pull has begun, each with the names in the same repository that this node did not own before. */
  const begun = new Map<string, readonly string[]>();
  let loaded = false;
  const isOwn = (image: Image, name: string) => owned.get(name)?.id === image.id;

  /** Takes ownership of an image's names that did not exist before the pull. */
  const takeOwnership = (wanted: string, others: readonly string[], image: Image) => {
    for (const name of namesIn(image)) {
      const isTag = image.repoTags.includes(name);
      const isOfPull = isTag ? name === wanted : repositoryOf(name) === repositoryOf(wanted);
      if (isOfPull && !others.includes(name)) owned.set(name, { id: image.id, recordedAt: clock.monotonic() });
    }
  };

  const reconcile = (images: readonly Image[], listedAt: number, isUnderWay: (name: string) => boolean): boolean => {
    const byName = new Map(images.flatMap((image) => namesIn(image).map((name) => [name, image] as const)));
    const ended = [...begun].filter(([wanted]) => !isUnderWay(wanted));
    for (const [wanted, others] of ended) {
      begun.delete(wanted);
      const image = byName.get(wanted);
      if (image) takeOwnership(wanted, others, image);
    }
    const lost = [...owned].filter(
      ([name, { id, recordedAt }]) => recordedAt < listedAt && !isUnderWay(name) && byName.get(name)?.id !== id,
    );
    for (const [name] of lost) owned.delete(name);
    return ended.length > 0 || lost.length > 0;
  };

  return {
    begun,
    isOwn,
    take: takeOwnership,
    /** @returns true if the record has changed. */
    settle: reconcile,
    async load(signal: AbortSignal): Promise<void> {
      if (loaded) return;
      const record = await readPulledNames(fs, rootDir, log, signal);
      if (loaded) return;
      loaded = true;
      for (const [name, id] of record.pulled) owned.set(name, { id, recordedAt: Number.NEGATIVE_INFINITY });
      for (const [name, others] of record.begun) begun.set(name, others);
    },
    save: coalesce(() => {
      const pulled = new Map([...owned].map(([name, { id }]) => [name, id]));
      return writePulledNames(fs, rootDir, { pulled, begun }, clock.within(writeTimeoutMs));
    }),
  };
}

/** Tags first: when a repository's last tag is removed, Docker also removes its digests. */
function namesIn({ repoTags, repoDigests }: Image): readonly string[] {
  return [...repoTags, ...repoDigests];
}

function repositoryOf(name: string): string | undefined {
  try {
    return parseImageName(name).repository;
  } catch {
    return undefined;
  }
}

/** Images that this node pulled into a runtime that it shares with others, recorded in its root directory. Names are fully qualified. */
interface PulledNames {
  /** Image ID by pulled name. */
  readonly pulled: ReadonlyMap<string, string>;
  /** Names whose pull has begun, each with the names in the same repository that existed before. */
  readonly begun: ReadonlyMap<string, readonly string[]>;
}

const version = 1;
const maxBytes = 16 * 2 ** 20;

function recordFile(rootDir: string): string {
  return `${ownDirectory(rootDir)}/images.json`;
}

/** Reads the record; empty if there is none. A corrupt record is renamed, and images listed only there are never collected.
 *  @throws if the target cannot be read. */
async function readPulledNames(
  fs: Pick<HostFs, "readFile" | "apply">,
  rootDir: string,
  log: Logger,
  signal: AbortSignal,
): Promise<PulledNames> {
  const file = recordFile(rootDir);
  let text: string;
  try {
    text = (await fs.readFile(file, { maxBytes, signal })).toString("utf8");
  } catch (error) {
    if (hasCode(error, "not_found")) return { pulled: new Map(), begun: new Map() };
    if (!hasCode(error, "failed_precondition", "resource_exhausted")) throw error;
    text = "";
  }
  const record = parseRecord(text);
  if (record) return record;
  log.warn({ file }, "record of pulled images is corrupt; renamed it, and its images will not be removed");
  await fs.apply([{ kind: "rename", from: file, to: `${file}.torn` }], signal);
  return { pulled: new Map(), begun: new Map() };
}

/** Replaces the record atomically. */
async function writePulledNames(
  fs: Pick<HostFs, "apply">,
  rootDir: string,
  { pulled, begun }: PulledNames,
  signal: AbortSignal,
): Promise<void> {
  const file = recordFile(rootDir);
  const content = { version, pulled: Object.fromEntries(pulled), begun: Object.fromEntries(begun) };
  await fs.apply(replaceFile(file, `${JSON.stringify(content)}\n`, 0o600), signal);
}

/** Undefined if the text is not a valid record. */
function parseRecord(text: string): PulledNames | undefined {
  const content = recordIn(text);
  if (content?.["version"] !== version) return undefined;
  const pulled = entriesOf(content["pulled"]).flatMap(([name, id]) =>
    typeof id === "string" ? [[name, id] as const] : [],
  );
  const begun = entriesOf(content["begun"]).flatMap(([name, others]) =>
    Array.isArray(others) ? [[name, others.filter((other) => typeof other === "string")] as const] : [],
  );
  return { pulled: new Map(pulled), begun: new Map(begun) };
}
