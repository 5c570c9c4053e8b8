/** Ratios that a page documents: of each figure of a part's table, what it came to relative to somebody else's, by the figure's name and
 *  that somebody's. @param name of the part, such as `bench cri`. Pure. */
export function documentedRatios(page: string, name: string): ReadonlyMap<string, number> {
  const part = page.slice(page.indexOf(`<!-- ${name} -->`), page.indexOf(`<!-- end of ${name} -->`));
  const ratios = new Map<string, number>();
  let title = "";
  for (const line of part.split("\n").filter((text) => text.startsWith("| "))) {
    const cells = line.split("|").map((cell) => cell.trim());
    title = cells[1] || title;
    const ratio = /^([\d.]+) ×/.exec(cells.at(-4) ?? "")?.[1];
    const other = /× (.+)$/.exec(cells.at(-3) ?? "")?.[1];
    if (ratio !== undefined && other !== undefined)
      ratios.set(ratioKey(title.replace(/, [^,]*$/, ""), other), Number(ratio));
  }
  return ratios;
}

/** The name of a ratio. @param title of the figure, without its unit. */
export function ratioKey(title: string, other: string): string {
  return `${title} × ${other}`;
}
