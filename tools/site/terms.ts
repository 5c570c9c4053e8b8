// The site's index: headings and names of the pages by their letters. It stands in for a search, which would need a script.
import { slugOf } from "./slug.ts";

/** A Markdown page. */
export interface Source {
  /** Its path from the project's folder. */
  readonly path: string;
  readonly title: string;
  readonly text: string;
}

/** A place of a term: one a page, the first section with it. */
export interface Place {
  readonly path: string;
  readonly title: string;
  /** Empty for what stands before the first heading. */
  readonly anchor: string;
}

export interface Term {
  readonly text: string;
  readonly isCode: boolean;
  readonly places: readonly Place[];
}

/** Names that one looks up: flags, reasons and kinds (`LinkDown`), fields (`maxPods`, `nodes[].ssh.host`), metrics and labels. */
const names = [
  /^--[a-z][\w-]+(?=$|[ =])/,
  /^[A-Z][a-z]+[A-Z]\w*$/,
  /^[a-z]+(?:[A-Z][a-z0-9]+)+(?:\[\])?$/,
  /^[a-z]\w*(?:\[\])?(?:\.[a-z]\w*(?:\[\])?)+$/i,
  /^(?:graftlet|kubelet)_\w+$/,
  /^graftlet\.dev\/[\w-]+$/,
];
/** Words with a name's form that are none: files, hosts. */
const others =
  /\.(?:md|ts|ya?ml|json|txt|service|mjs|example|conflist|crt|pem|so|svg|conf|local|gz)$|^kubectl|\d+\.\d+/;

/** The headings below the pages' titles, and the names that stand in them as code, in the order of their letters. Pure. */
export function termsOf(sources: readonly Source[]): readonly Term[] {
  const terms = new Map<string, { text: string; isCode: boolean; places: Place[] }>();
  const add = (text: string, isCode: boolean, place: Place) => {
    const key = isCode ? `code ${text}` : text.toLowerCase();
    const { places } = terms.getOrInsertComputed(key, () => ({ text, isCode, places: [] }));
    if (!places.some(({ path }) => path === place.path)) places.push(place);
  };
  for (const { path, title, text } of sources)
    for (const { heading, anchor, lines } of sectionsOf(text)) {
      const place = { path, title, anchor };
      if (heading.startsWith("##")) add(plain(heading), false, place);
      for (const name of namesIn(lines)) add(name, true, place);
    }
  const order = new Intl.Collator("en", { numeric: true });
  return [...terms.values()].toSorted((one, other) => order.compare(sortedAs(one), sortedAs(other)));
}

/** The letter under which a term stands: `--page-port` and "The page" are under P. Pure. */
export function letterOf(term: Term): string {
  return /^[A-Z]/.exec(sortedAs(term).toUpperCase())?.[0] ?? "0–9";
}

function sortedAs({ text }: Term): string {
  return text.replace(/^(?:[^A-Za-z0-9]+|(?:A|An|The) )/, "");
}

function sectionsOf(text: string): { heading: string; anchor: string; lines: string }[] {
  const seen = new Map<string, number>();
  const parts = text.replaceAll(/^ *```.*?^ *```$/gms, "").split(/^(?=#{1,4} )/m);
  return parts.map((part) => {
    const [heading = "", ...lines] = part.split("\n");
    if (!heading.startsWith("#")) return { heading: "", anchor: "", lines: part };
    const slug = slugOf(heading.replace(/^#+ /, ""));
    const before = seen.get(slug) ?? 0;
    seen.set(slug, before + 1);
    return { heading, anchor: before === 0 ? slug : `${slug}-${before}`, lines: lines.join("\n") };
  });
}

function plain(heading: string): string {
  return heading
    .replace(/^#+ (?:\d+\. )?/, "")
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replaceAll("`", "");
}

function namesIn(lines: string): readonly string[] {
  return [...lines.matchAll(/`([^`\n]+)`/g)].flatMap(([, code = ""]) => {
    const [found] = names.flatMap((name) => name.exec(code)?.[0] ?? []);
    return found === undefined || others.test(found) ? [] : [found];
  });
}
