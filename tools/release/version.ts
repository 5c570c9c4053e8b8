/** Where a version is written, and what is written there. */
export type Versions = Readonly<Record<string, string | undefined>>;

/** The version that all places agree on. Pure. @throws one sentence that names the first two that differ. */
export function agreedVersion(versions: Versions): string {
  const [first, ...others] = Object.entries(versions);
  const [place, version] = first ?? [];
  if (version === undefined) throw new Error(`${place} has no version: write one such as 0.1.0`);
  const other = others.find(([, each]) => each !== version);
  if (other)
    throw new Error(
      `${place} has version ${version}, and ${other[0]} has ${other[1] ?? "none"}: write the same version into both`,
    );
  return version;
}

/** The notes of a version: its section of CHANGELOG.md, without the heading. Pure.
 *  @param draft before a release: the unreleased section counts where the version has none of its own.
 *  @throws one sentence when there is no such section, or nothing in it.
 *  @see https://keepachangelog.com/en/1.1.0/ */
export function notesOf(changelog: string, version: string, draft: boolean): string {
  const sections = new Map(
    changelog
      .split(/^## /m)
      .slice(1)
      .map((section) => {
        const [heading = "", ...lines] = section.split("\n");
        return [heading, lines.join("\n").trim()] as const;
      }),
  );
  const dated = [...sections].find(([heading]) => heading.startsWith(`[${version}] - `))?.[1];
  const notes = dated ?? (draft ? sections.get("[Unreleased]") : undefined);
  if (!notes)
    throw new Error(
      `CHANGELOG.md says nothing of version ${version}, which package.json has: write its section, "## [${version}] - YYYY-MM-DD"`,
    );
  return `${notes}\n`;
}
