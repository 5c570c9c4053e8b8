import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isLoopback, crossSiteRefusal, loopbackRefusal, securityHeaders } from "../../../src/page/access.ts";

test("the page on loopback accepts only loopback names as Host", () => {
  for (const host of ["localhost", "LOCALHOST:4194", "127.0.0.1:4194", "127.3.2.1", "[::1]:80"])
    assert.equal(loopbackRefusal({ host }), undefined, host);
  for (const host of [
    undefined,
    "",
    "evil.example",
    "localhost.evil.example:4194",
    "127.0.0.1.evil.example",
    "192.0.2.7",
    "[::2]",
  ])
    assert.equal(loopbackRefusal({ host })?.status, 403, String(host));
});

test("refuses cross-site requests except navigation to the page", () => {
  const from = (site: string, path: string) => crossSiteRefusal(path, { "sec-fetch-site": site })?.status;
  assert.deepEqual(
    [from("same-origin", "/feed"), from("none", "/feed"), from("cross-site", "/")],
    [undefined, undefined, undefined],
  );
  assert.deepEqual([from("cross-site", "/feed"), from("same-site", "/page.js")], [403, 403]);
  assert.equal(crossSiteRefusal("/feed", {}), undefined);
});

test("loopback is 127.0.0.0/8 and ::1", () => {
  assert.deepEqual(["127.0.0.1", "127.9.9.9", "::1"].map(isLoopback), [true, true, true]);
  assert.deepEqual(["0.0.0.0", "::", "192.0.2.7", "10.0.0.1", "localhost", ""].map(isLoopback), Array(6).fill(false));
});

test("the content security policy allows only the page's own script, style, image and feed", () => {
  const policy = new Map(
    (securityHeaders["Content-Security-Policy"] ?? "").split("; ").map((part) => {
      const [name = "", ...sources] = part.split(" ");
      return [name, sources.join(" ")];
    }),
  );
  assert.equal(policy.get("default-src"), "'none'");
  for (const name of ["script-src", "style-src", "img-src", "connect-src"]) assert.equal(policy.get(name), "'self'");
  for (const name of ["base-uri", "form-action", "frame-ancestors"]) assert.equal(policy.get(name), "'none'");
  assert.doesNotMatch([...policy.values()].join(" "), /unsafe|https?:|\*/);
});

test("the page's source has no inline script or style, no external address, and creates no markup from text", () => {
  const folder = join(import.meta.dirname, "../../../src/page/browser");
  const html = readFileSync(join(folder, "page.html"), "utf8");
  assert.doesNotMatch(html, /<style|style=| on\w+=|https?:|<script(?![^>]*src=)/);
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".ts")))
    assert.doesNotMatch(
      readFileSync(join(folder, file), "utf8"),
      /innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|https?:/,
      file,
    );
});
