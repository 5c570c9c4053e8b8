/** Replaces the part of a page that one kind of run writes. Parts stand between `<!-- bench NAME -->` and
 *  `<!-- end of bench NAME -->`. @throws when the page has no such part. */
export function withPart(page: string, name: string, text: string): string {
  const [begin, end] = [`<!-- bench ${name} -->`, `<!-- end of bench ${name} -->`];
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`the page has no part between ${begin} and ${end}`);
  return `${page.slice(0, from + begin.length)}\n\n${text.trim()}\n\n${page.slice(to)}`;
}
