// What the marks of a document's commands promise, such as _Run by test/….test.ts._, and the words that such a test must have.
import { existsSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { type Block, blocksOf, root, textOf } from "./pages.ts";

/** Programs that only show or carry something in a block. */
const aside = new Set(["cat", "cd", "cut", "echo", "export", "grep"]);
/** Verbs of kubectl whose next word says what they are about. */
const withObject = new Set(["apply", "certificate", "create", "get", "rollout", "top"]);
/** Flags that say where and how long, not what. */
const common = new Set(["--kubeconfig", "--namespace", "--set", "--timeout", "--values"]);

/** The words of a command without which a test does not run it: program, verb, names of long flags, the last part of each value that helm
 *  sets, the last part of each path of the API. Pure. @param command a line of a shell */
export function significantWords(command: string): readonly string[] {
  return command.split(/ (?:\||&&|\|\|) |; /).flatMap(wordsOfOne);
}

function wordsOfOne(command: string): readonly string[] {
  const [ours = ""] = command.split(/ -- | # /);
  const words = (ours.match(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g) ?? []).map((word) => word.replaceAll(/['"]/g, ""));
  const [program = "", ...rest] = words;
  if (program === "" || aside.has(program)) return [];
  const flags = rest.flatMap((word) => /^--[a-z][\w-]*/.exec(word) ?? []).filter((flag) => !common.has(flag));
  const set = rest.flatMap((word, at) => (rest[at - 1] === "--set" ? lastPartOf(word.split("=")[0] ?? "") : []));
  const paths = rest.filter((word) => word.startsWith("/api/")).flatMap(lastPartOf);
  return [baseOf(program), ...verbsOf(rest), ...flags, ...set, ...paths];
}

function baseOf(program: string): string {
  return (program.split("/").at(-1) ?? "").replace(/\.mjs$/, "");
}

/** The last part of `nodes[0].ssh.host`, or of a path. */
function lastPartOf(name: string): readonly string[] {
  return name.split(/[./]/).slice(-1);
}

function verbsOf(words: readonly string[]): readonly string[] {
  const plain = words.filter(
    (word, at) => /^[a-z]+$/.test(word) && !/^-\w$|^--(namespace|set)$/.test(words[at - 1] ?? ""),
  );
  const [verb = "", object = ""] = plain;
  return [verb, withObject.has(verb) ? object : ""].filter((word) => word !== "");
}

/** Whether a block is run as it stands, by the test that takes all blocks with this mark. */
export function isRunAsItStands(mark: string): boolean {
  return mark === "_Run by test/contract/documents.test.ts, word for word._";
}

/** The words of which a mark says itself that the test does otherwise: those that stand in it as code. */
export function excusedIn(mark: string): ReadonlySet<string> {
  const code = [...mark.matchAll(/`([^`]+)`/g)].flatMap(([, text = ""]) => text.split(" "));
  return new Set(code);
}

/** The tests that a mark names. */
export function testsIn(mark: string): readonly string[] {
  return [...mark.matchAll(/test\/[\w/-]+\.test\.ts/g)].map(([path]) => path);
}

/** What a test consists of, but for comments: its own text, that of each file of test/ that it takes in, and the README's blocks that it runs
 *  word for word. @param path from the project's folder */
export function textOfTest(path: string): string {
  const seen = new Map<string, string>();
  const waiting = [path];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    if (seen.has(next) || !next.startsWith("test/") || !existsSync(join(root, next))) continue;
    const text = textOf(next);
    seen.set(next, text.replaceAll(/^\s*(?:\/\/|\/?\*).*$/gm, ""));
    for (const [, from = ""] of text.matchAll(/ from "(\.[^"]+)"/g)) waiting.push(normalize(join(dirname(next), from)));
  }
  const all = [...seen.values()].join("\n");
  if (!all.includes('blocksOf("README.md")')) return all;
  const isRun = ({ mark }: Block) => mark.includes("word for word") && testsIn(mark).includes(path);
  return [
    all,
    ...blocksOf("README.md")
      .filter(isRun)
      .map(({ text }) => text),
  ].join("\n");
}

/** Whether a text has a word as arguments have it: behind a quote, a blank, a slash, a dot or a dollar, and whole. */
export function hasWord(text: string, word: string): boolean {
  return new RegExp(`(?<=["'\`/ .$])${RegExp.escape(word)}(?![\\w-])`).test(text);
}
