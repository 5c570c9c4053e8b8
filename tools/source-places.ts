import { SourceMap, type SourceMapPayload } from "node:module";
import { basename } from "node:path";

/** Where V8 sees a call that may write to the log: at the method's name, or, where that is worked out, at the bracket of the arguments. */
const logCall = /(?<=\.)(?:trace|debug|info|warn|error)\b|(?<="(?:trace|debug|info|warn|error)"\])\(/g;

/** The places in the source of calls in a built file that may write to the log, for src/lib/log.ts.
 *  @param built text of the file. @param map its source map, as JSON.
 *  @returns `line:column` of the built file, from 1, to `file.ts:line`; those of packages and of generated code are left out. */
export function sourcePlaces(built: string, map: string): Record<string, string> {
  const lines = new SourceMap(JSON.parse(map) as SourceMapPayload);
  const places: Record<string, string> = {};
  for (const [line, text] of built.split("\n").entries()) {
    for (const { index } of text.matchAll(logCall)) {
      const entry = lines.findEntry(line, index);
      if (!("originalSource" in entry) || /\/(node_modules|gen)\//.test(entry.originalSource)) continue;
      places[`${line + 1}:${index + 1}`] = `${basename(entry.originalSource)}:${entry.originalLine + 1}`;
    }
  }
  return places;
}
