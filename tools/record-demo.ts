// node tools/record-demo.ts: runs make demo PROVIDER=helm, keeps it in ~/.cache/graftlet/demo.cast (asciicast 2, which asciinema plays), and
// draws docs/pictures/demo.svg from it. node tools/record-demo.ts FILE.cast draws one that is there.
import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { type Line, terminalSvg } from "./terminal-svg.ts";

const root = join(import.meta.dirname, "..");
const title = "make demo PROVIDER=helm: a recording of a real run, its pauses cut or stretched so that it can be read";
const look = { columns: 118, rows: 28, title, longestPause: 1500, toRead: 160 };

const [given] = process.argv.slice(2);
const cast = given ?? join(homedir(), ".cache", "graftlet", "demo.cast");
if (given === undefined) writeFileSync(cast, toCast(await record(["make", "demo", "PROVIDER=helm"])));
const svg = terminalSvg(fromCast(readFileSync(cast, "utf8")), look);
writeFileSync(join(root, "docs", "pictures", "demo.svg"), svg);
console.log(`docs/pictures/demo.svg: ${(svg.length / 1024).toFixed(0)} KiB, from ${cast}`);

/** What a command prints from its first heading on, without names of this machine's folders. @throws when it fails. */
async function record([program = "", ...args]: readonly string[]): Promise<readonly Line[]> {
  const child = spawn(program, args, { cwd: root, stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<number | null>((resolve, reject) => child.once("error", reject).once("close", resolve));
  const lines: Line[] = [];
  for await (const printed of createInterface({ input: child.stdout })) {
    console.log(printed);
    const text = printed.replaceAll(root, ".").replaceAll(homedir(), "~").replaceAll("\t", "    ");
    if (lines.length > 0 || text.startsWith("── ")) lines.push({ at: performance.now(), text });
  }
  if ((await ended) !== 0) throw new Error(`${[program, ...args].join(" ")} failed: nothing is drawn`);
  return lines;
}

function toCast(lines: readonly Line[]): string {
  const first = lines[0]?.at ?? 0;
  const header = { version: 2, width: look.columns, height: look.rows, title };
  const events = lines.map(({ at, text }) => [Number(((at - first) / 1000).toFixed(3)), "o", `${text}\r\n`]);
  return [header, ...events].map((line) => `${JSON.stringify(line)}\n`).join("");
}

function fromCast(text: string): readonly Line[] {
  const [, ...events] = text.trimEnd().split("\n");
  return events.map((line) => {
    const [seconds, , data] = JSON.parse(line) as readonly [number, string, string];
    return { at: seconds * 1000, text: data.trimEnd() };
  });
}
