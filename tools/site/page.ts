/** A group of links of the navigation. */
export interface LinkGroup {
  readonly name: string;
  readonly links: readonly { readonly href: string; readonly title: string; readonly here: boolean }[];
}

interface Page {
  readonly title: string;
  /** HTML. */
  readonly content: string;
  /** The way from the page to the site's root. */
  readonly up: string;
  readonly navigation: readonly LinkGroup[];
}

/** A page of the site: its content beside the navigation. Pure. */
export function pageHtml({ title, content, up, navigation }: Page): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escaped(title)} · graftlet</title>
<link rel="icon" href="${up}/icon.svg">
<link rel="stylesheet" href="${up}/site.css">
</head>
<body>
<a class="skip" href="#content">To the page</a>
<header><a class="home" href="${up}/index.html"><img src="${up}/icon.svg" alt="" width="28" height="28">graftlet</a>
<a class="pages" href="#pages">Pages</a></header>
<nav id="pages" aria-label="Pages">${navigation.map(groupHtml).join("")}</nav>
<main id="content">
${content}
</main>
</body>
</html>
`;
}

function groupHtml({ name, links }: LinkGroup): string {
  const items = links.map(
    ({ href, title, here }) => `<li><a href="${href}"${here ? ' aria-current="page"' : ""}>${escaped(title)}</a></li>`,
  );
  return `<p>${name}</p><ul>${items.join("")}</ul>`;
}

/** Text of a heading as HTML, without its marks of code. */
export function escaped(text: string): string {
  return text.replaceAll("`", "").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
