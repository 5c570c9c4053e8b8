import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { must } from "../../test/harness/processes.ts";
import { agreedVersion, notesOf } from "./version.ts";

/** The checkout that releases are made of. */
export const root = join(import.meta.dirname, "..", "..");

/** Where its repository is, as the chart says. */
export const repository = "https://github.com/graftlet/graftlet";

/** What a release is made of. */
export interface Source {
  readonly version: string;
  /** The commit, 40 hexadecimal digits. */
  readonly revision: string;
  /** When it was committed, seconds since the epoch: all that is made of it has this date. */
  readonly date: number;
  /** Release notes, Markdown. */
  readonly notes: string;
}

/** Reads what this checkout would be released as.
 *  @param draft see `notesOf`; else every file must be committed as well.
 *  @throws one sentence: versions that differ, notes that lack, files that are not committed. */
export async function readSource({ draft }: { readonly draft: boolean }): Promise<Source> {
  const text = (file: string): string => readFileSync(join(root, file), "utf8");
  const { version } = JSON.parse(text("package.json")) as { readonly version?: string };
  const lock = JSON.parse(text("package-lock.json")) as { readonly version?: string };
  const chart = parse(text("charts/graftlet/Chart.yaml")) as {
    readonly version?: string;
    readonly appVersion?: string;
  };
  const agreed = agreedVersion({
    "package.json": version,
    "package-lock.json": lock.version,
    "version of charts/graftlet/Chart.yaml": chart.version,
    "appVersion of charts/graftlet/Chart.yaml": chart.appVersion,
    "src/version.ts": /graftletVersion = "(.*)"/.exec(text("src/version.ts"))?.[1],
  });
  const notes = notesOf(text("CHANGELOG.md"), agreed, draft);
  if (!draft) await checkCommitted();
  const [revision = "", date] = (await git("log", "-1", "--format=%H %ct")).trim().split(" ");
  return { version: agreed, revision, date: Number(date), notes };
}

/** A date as registries and SBOMs have it. @param date seconds since the epoch. */
export function isoDate(date: number): string {
  return new Date(date * 1000).toISOString().replace(".000Z", "Z");
}

/** The files of a folder of the checkout, sorted, relative to it: what git knows of, and what it would add. */
export async function filesIn(folder: string): Promise<string[]> {
  const listed = await git("ls-files", "-z", "--cached", "--others", "--exclude-standard", folder);
  const names = listed.split("\0").filter((name) => name !== "" && existsSync(join(root, name)));
  return names.map((name) => name.slice(folder.length + 1)).toSorted();
}

async function checkCommitted(): Promise<void> {
  const changed = await git("status", "--porcelain");
  if (changed !== "")
    throw new Error(`${changed.trim().split("\n").length} files are not committed: commit them first`);
}

/** Runs git in the checkout, which may be another user's. */
async function git(...args: readonly string[]): Promise<string> {
  if (!existsSync(join(root, ".git"))) throw new Error(`${root} is no git repository: a release is made of a commit`);
  return must(["git", "-c", `safe.directory=${root}`, "-C", root, ...args]);
}
