import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { excusedIn, hasWord, isRunAsItStands, significantWords, testsIn, textOfTest } from "./marks.ts";
import { type Block, blocksOf, commandsIn, pages, root } from "./pages.ts";

const blocks = pages.flatMap(blocksOf);
const commands = blocks.filter(({ language }) => language === "console");

/** What of a block's commands is in no test that its mark names. */
function missingIn(block: Block): readonly string[] {
  const text = testsIn(block.mark).map(textOfTest).join("\n");
  const excused = excusedIn(block.mark);
  const words = new Set(commandsIn(block).flatMap(significantWords)).difference(excused);
  return [...words].filter((word) => !hasWord(text, word)).map((word) => `${block.place}: ${word}`);
}

test("commands in the documents are in console blocks and have a prompt", () => {
  assert.ok(commands.length > 60);
  const astray = blocks.filter(({ language, text }) =>
    language === "console" ? !text.startsWith("$ ") : /^(bash|sh|shell|zsh)$/.test(language) || text.startsWith("$ "),
  );
  assert.deepEqual(
    astray.map(({ place }) => place),
    [],
  );
});

test("each block of commands names the test that runs it, or the reason why no test does", () => {
  const unmarked = commands.filter(({ mark }) => !/^_(Run by test\/|Not run[ :])[^]*\._$/.test(mark));
  assert.deepEqual(
    unmarked.map(({ place }) => place),
    [],
  );
});

test("the tests named in marks exist", () => {
  const gone = commands.flatMap(({ mark, place }) =>
    testsIn(mark).flatMap((path) => (existsSync(join(root, path)) ? [] : [`${place}: ${path}`])),
  );
  assert.deepEqual(gone, []);
});

test("a test that runs a block of commands contains its programs, verbs, flags and values", () => {
  const run = commands.filter(({ mark }) => mark.startsWith("_Run by ") && !isRunAsItStands(mark));
  assert.ok(run.length > 20);
  assert.deepEqual(run.flatMap(missingIn), []);
});

test("extracts programs, verbs and flags from a command", () => {
  const command =
    "kubectl -n graftlet create secret generic edge-1-ssh --from-file known_hosts && helm install edge charts/graftlet \\";
  assert.deepEqual(significantWords(command), ["kubectl", "create", "secret", "--from-file", "helm", "install"]);
  assert.deepEqual(
    significantWords("helm upgrade edge charts/graftlet -n graftlet --set 'nodes[0].ssh.host=edge-1.example'"),
    ["helm", "upgrade", "host"],
  );
  assert.deepEqual(significantWords("dist/graftlet.mjs --page-port=4194 -- --more"), ["graftlet", "--page-port"]);
  assert.deepEqual(significantWords("kubectl get --raw /api/v1/nodes/edge-1/proxy/metrics/probes | grep x"), [
    "kubectl",
    "get",
    "--raw",
    "probes",
  ]);
});
