// make site: the documents as a static site in dist/site, by Eleventy. Pages link to each other as the Markdown files do; what is not a
// page is linked on the project's own page. Nothing is fetched from elsewhere when a page is read, and there is no script.
// node tools/site/build.ts [FOLDER], from the project's folder.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, normalize, relative } from "node:path";
import { Eleventy } from "@11ty/eleventy";
import { asOnSite } from "./markdown.ts";
import { indexHtml } from "./index-page.ts";
import { pageHtml } from "./page.ts";

const [out = join("dist", "site")] = process.argv.slice(2);
const repository = "https://github.com/graftlet/graftlet/blob/main";

/** The page that is made of the others' headings and names, and those that users do not look things up in. */
const index = "terms.md";
const notInIndex = new Set([index, "CHANGELOG.md", "CONTRIBUTING.md", "docs/architecture.md"]);

/** The pages of the navigation, in its order: those of the README's tables under their headings, and what needs no row there. */
const [, tables = ""] = readFileSync("README.md", "utf8").split(/^## (?:Documentation|Contributing)$/m);
const inTables = tables
  .split(/^### /m)
  .slice(1)
  .map((part) => ({
    name: part.split("\n")[0] ?? "",
    pages: [...part.matchAll(/^\| \[[^\]]+\]\(([^)#]+\.md)\) +\|/gm)].map(([, path = ""]) => path),
  }));
const groups = [
  { name: "Overview", pages: ["README.md", index] },
  ...inTables,
  { name: "Guides", pages: readdirSync("docs/guides").map((name) => `docs/guides/${name}`) },
  { name: "Contributing", pages: ["charts/graftlet/README.md", "docs/architecture.md", "CONTRIBUTING.md"] },
];
const named: Readonly<Record<string, string>> = {
  [index]: "Index of all pages",
  "README.md": "What graftlet is",
  "charts/graftlet/README.md": "The chart",
};

/** The pages' Markdown; the index has none. */
const texts = new Map(
  groups.flatMap(({ pages }) => pages.map((page) => [page, page === index ? "" : readFileSync(page, "utf8")] as const)),
);
const titles = new Map([...texts].map(([page, text]) => [page, named[page] ?? /^# (.*)$/m.exec(text)?.[1] ?? page]));

/** Where a page is written. */
function targetOf(page: string): string {
  return page.replace(/README\.md$/, "index.md").replace(/\.md$/, ".html");
}

/** A page's link as the site has it. */
function linkFrom(page: string, href: string): string {
  if (/^(https?:|mailto:|#)/.test(href)) return href;
  const [path = "", anchor] = href.split("#");
  const file = join(dirname(page), path);
  const to = titles.has(file) ? relative(dirname(targetOf(page)), targetOf(file)) : `${repository}/${file}`;
  return anchor === undefined ? to : `${to}#${anchor}`;
}

function pageOf(page: string, content: string): string {
  const up = relative(dirname(targetOf(page)), ".") || ".";
  const navigation = groups.map(({ name, pages }) => ({
    name,
    links: pages.map((other) => ({
      href: `${up}/${targetOf(other)}`,
      title: titles.get(other) ?? other,
      here: other === page,
    })),
  }));
  return pageHtml({ title: titles.get(page) ?? page, content, up, navigation });
}

const eleventy = new Eleventy(".", out, {
  configPath: false,
  quietMode: true,
  config: (site) => {
    site.setTemplateFormats(["md"]);
    for (const folder of ["src", "test", "providers", "tools"]) site.ignores.add(`${folder}/**`);
    site.addGlobalData("permalink", () => ({ page }) => {
      const path = normalize(page.inputPath);
      return titles.has(path) ? targetOf(path) : false;
    });
    site.amendLibrary("md", (markdown) =>
      asOnSite(markdown, (inputPath, href) => linkFrom(normalize(inputPath), href)),
    );
    site.addTransform("page", function page(content) {
      return pageOf(normalize(this.page.inputPath), content);
    });
    site.addPassthroughCopy({ "tools/site/site.css": "site.css", "charts/graftlet/icon.svg": "icon.svg" });
    site.addPassthroughCopy("docs/pictures");
    return { markdownTemplateEngine: false };
  },
});
await eleventy.write();
const sources = [...texts]
  .filter(([path]) => !notInIndex.has(path))
  .map(([path, text]) => ({ path, title: titles.get(path) ?? path, text }));
writeFileSync(join(out, targetOf(index)), pageOf(index, indexHtml(sources, targetOf)));
console.log(`${titles.size} pages in ${out}: open ${join(out, "index.html")}`);
