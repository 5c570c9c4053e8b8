import assert from "node:assert/strict";
import { test } from "node:test";
import { terminalSvg } from "../../../tools/terminal-svg.ts";

const look = { columns: 12, rows: 2, title: "a & b", longestPause: 1000, toRead: 0 };

test("scrolls a session's lines as they were printed, with long pauses shortened", () => {
  const svg = terminalSvg(
    [
      { at: 0, text: "$ one" },
      { at: 500, text: "<two>" },
      { at: 60_500, text: "── three is long" },
    ],
    look,
  );
  assert.match(svg, /<text y="18" class="c" xml:space="preserve">\$ one<\/text>/);
  assert.match(svg, /<text y="36" xml:space="preserve">&lt;two&gt;<\/text>/);
  assert.match(svg, /<text y="54" class="h" xml:space="preserve">── three is…<\/text>/);
  assert.match(svg, /<title>a &amp; b<\/title>/);
  // One and a half seconds of session, four more until it begins anew.
  assert.match(svg, /animation:s 5\.5s step-end infinite/);
  assert.match(
    svg,
    /0\.00%\{transform:translateY\(18px\)\}9\.09%\{transform:translateY\(0px\)\}27\.27%\{transform:translateY\(-18px\)\}/,
  );
});

test("shows a command's output long enough to be read", () => {
  const session = ["$ one", "a", "b", "$ two"].map((text) => ({ at: 0, text }));
  const svg = terminalSvg(session, { ...look, toRead: 200 });
  assert.match(svg, /animation:s 4\.6s/);
  assert.match(svg, /@keyframes s\{0\.00%\{transform:translateY\(-18px\)\}13\.04%\{transform:translateY\(-36px\)\}\}/);
});

test("shows the final state at once to users who prefer reduced motion", () => {
  const svg = terminalSvg(
    [
      { at: 0, text: "a" },
      { at: 1, text: "b" },
      { at: 2, text: "c" },
    ],
    look,
  );
  assert.match(svg, /infinite;transform:translateY\(-18px\)/);
  assert.match(svg, /prefers-reduced-motion:reduce\)\{\.s\{animation:none\}/);
});

test("rejects a session without output", () => {
  assert.throws(() => terminalSvg([], look), /no line/);
});
