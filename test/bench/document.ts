/** Replaces the part of a page that one kind of run writes. Parts stand between `<!-- NAME -->` and `<!-- end of NAME -->`.
 *  @param name such as `bench cri`. @throws when the page has no such part. */
export function withPart(page: string, name: string, text: string): string {
  const [begin, end] = [`<!-- ${name} -->`, `<!-- end of ${name} -->`];
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`the page has no part between ${begin} and ${end}`);
  return `${page.slice(0, from + begin.length)}\n\n${text.trim()}\n\n${page.slice(to)}`;
}
