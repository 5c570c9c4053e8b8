import type { Architecture } from "../../test/harness/image.ts";
import type { Registry } from "./registry.ts";
import type { SigningKey } from "./signing.ts";
import type { Source } from "./source.ts";

/** Contents of files by name. */
export type Files = Readonly<Record<string, Buffer | string>>;

/** What a release is made for. */
export const architectures: readonly Architecture[] = ["amd64", "arm64"];

/** Where a release goes: names without tags. */
export interface Places {
  /** The image, such as ghcr.io/graftlet/graftlet. */
  readonly image: string;
  /** What charts lie below, such as ghcr.io/graftlet/charts. */
  readonly charts: string;
}

/** What a release is made with. */
export interface Making {
  readonly source: Source;
  readonly places: Places;
  readonly registry: Registry;
  /** Signs all; without one it is left to cosign, which has keys of the moment. */
  readonly key?: SigningKey;
  /** An address that says who builds. */
  readonly builder: string;
  /** For the files; what lies there goes. */
  readonly folder: string;
  /** An archive of `docker save` with the image for an architecture. */
  archiveOf(architecture: Architecture): Promise<string>;
  say(line: string): void;
}

/** What was released: release.json. */
export interface Published {
  readonly version: string;
  readonly image: string;
  /** Of the index of both architectures. */
  readonly imageDigest: string;
  readonly chart: string;
  readonly chartDigest: string;
  /** Names of the files that SHA256SUMS has, in its folder. */
  readonly files: readonly string[];
}
