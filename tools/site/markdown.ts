// How the site's Markdown differs from markdown-it's own.
import anchor, { type Markdown } from "markdown-it-anchor";
import { slugOf } from "./slug.ts";

/** Gives headings GitHub's anchors, tables a frame that scrolls, and links the form that `linkFrom` gives them. */
export function asOnSite(markdown: Markdown, linkFrom: (inputPath: string, href: string) => string): void {
  markdown.use(anchor, { slugify: slugOf, permalink: anchor.permalink.headerLink() });
  markdown.core.ruler.push("links", ({ tokens, env }) => {
    for (const token of tokens.flatMap(({ children }) => children ?? []))
      if (token.type === "link_open") token.attrSet("href", linkFrom(env.page.inputPath, token.attrGet("href") ?? ""));
  });
  markdown.renderer.rules["table_open"] = () => '<div class="wide"><table>';
  markdown.renderer.rules["table_close"] = () => "</table></div>";
}
