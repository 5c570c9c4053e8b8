import { escaped } from "./page.ts";
import { type Source, type Term, letterOf, termsOf } from "./terms.ts";

/** The content of the page that lists the terms of others, as HTML. Pure.
 *  @param targetOf where a page is written; the index is beside the first one. */
export function indexHtml(sources: readonly Source[], targetOf: (path: string) => string): string {
  const groups = Object.entries(Object.groupBy(termsOf(sources), letterOf));
  const linkOf = ({ path, anchor, title }: Term["places"][number]) =>
    `<a href="${targetOf(path)}${anchor && `#${anchor}`}">${escaped(title)}</a>`;
  const itemOf = ({ text, isCode, places }: Term) => {
    const name = isCode ? `<code>${escaped(text)}</code>` : escaped(text);
    return `<li>${name} ${places.map(linkOf).join(", ")}</li>`;
  };
  const listOf = ([letter, terms = []]: readonly [string, Term[] | undefined]) =>
    `<h2 id="${letter}">${letter}</h2>\n<ul class="terms">\n${terms.map(itemOf).join("\n")}\n</ul>`;
  return `<h1>Index of all pages</h1>
<p>Headings, and names: flags, fields, reasons of conditions and events, metrics, labels. Each leads to the sections where it stands.</p>
<p class="letters">${groups.map(([letter]) => `<a href="#${letter}">${letter}</a>`).join("\n")}</p>
${groups.map(listOf).join("\n")}`;
}
