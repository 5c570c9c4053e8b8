import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { pages, root } from "./pages.ts";

describe("the site that make site generates", () => {
  let folder: string;
  let written: readonly string[];
  const html = (path: string) => readFileSync(join(folder, path), "utf8");

  before(async () => {
    assert.ok(existsSync(join(root, "tools/site/node_modules/@11ty")), "make site installs what this test needs");
    folder = mkdtempSync(join(tmpdir(), "graftlet-site-"));
    await promisify(execFile)(process.execPath, ["tools/site/build.ts", folder], { cwd: root, timeout: 50_000 });
    written = globSync("**/*.html", { cwd: folder });
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  test("renders each document as a page with its title, links to all others and the index", () => {
    const documents = pages.filter((page) => /^(docs|charts)\/|^[A-Z]+\.md$/.test(page));
    const files = documents.map((page) => page.replace(/README\.md$/, "index.md").replace(/\.md$/, ".html"));
    assert.deepEqual(
      [...written].sort(),
      [...files, "terms.html"].sort(),
      "a page of the site is named in the README's table, or is a guide",
    );
    for (const path of written) {
      assert.match(html(path), /<title>(?![^<]*\.md)[^<]+ · graftlet<\/title>/, path);
      const [, navigation = ""] = /<nav [^>]*>(.*?)<\/nav>/s.exec(html(path)) ?? [];
      assert.equal(navigation.split("<li>").length - 1, documents.length + 1, path);
      assert.match(html(path), / aria-current="page"/, path);
    }
  });

  test("links and pictures lead to existing files", () => {
    const astray = written.flatMap((path) =>
      [...html(path).matchAll(/ (?:href|src)="(?!https?:|mailto:)([^"]+)"/g)].flatMap(([, link = ""]) => {
        const [file = "", anchor] = link.split("#");
        const target = file === "" ? path : join(dirname(path), file);
        if (!existsSync(join(folder, target)) || !statSync(join(folder, target)).isFile()) return [`${path}: ${link}`];
        return anchor === undefined || html(target).includes(` id="${anchor}"`) ? [] : [`${path}: no anchor ${link}`];
      }),
    );
    assert.deepEqual(astray, []);
  });

  test("indexes headings, flags, fields and reasons once, with their pages", () => {
    const items = [...html("terms.html").matchAll(/<li>(.*?)<\/li>/g)].map(([, item = ""]) => item);
    const of = (start: string) => items.filter((item) => item.startsWith(start)).join("\n");
    assert.equal(
      of("Placeholders "),
      'Placeholders <a href="docs/daemonsets.html#placeholders">DaemonSets</a>',
      "a heading",
    );
    assert.equal(
      of("<code>--page-port</code>"),
      '<code>--page-port</code> <a href="index.html#dashboard">What graftlet is</a>',
      "a flag",
    );
    assert.match(
      of("<code>proxyJump</code>"),
      /"docs\/ssh\.html#the-providers-settings">[^\n]*"docs\/jump-hosts\.html#/,
    );
    assert.match(of("<code>NoSftp</code>"), /"docs\/troubleshooting\.html#ready">/);
    assert.ok(items.length > 500);
  });

  test("loads nothing from elsewhere, and has no scripts", () => {
    for (const path of written)
      assert.doesNotMatch(html(path), /<script|<iframe|<link[^>]+href="https?:|src="https?:|@import|url\(/, path);
  });
});
