import { getCallSites } from "node:util";

/** In the built file: `line:column` there to `file.ts:line` of the source, as JSON (tools/source-places.ts). */
declare const __sourcePlaces: string | undefined;

/** A place in the source. */
export interface SourcePlace {
  /** Name of the file, without its directory. */
  readonly file: string;
  readonly line: number;
}

/** Finds source locations of callers: `above` frames above the caller of the returned function. */
export function createSourcePlaces(): (above: number) => SourcePlace {
  let known: Readonly<Record<string, string>> | undefined;
  return (above) => {
    const site = getCallSites(above + 2)[above + 1];
    if (!site) return { file: "main.ts", line: 1 };
    known ??= typeof __sourcePlaces === "string" ? (JSON.parse(__sourcePlaces) as Record<string, string>) : {};
    const [file = "", line] = known[`${site.lineNumber}:${site.columnNumber}`]?.split(":") ?? [];
    if (line !== undefined) return { file, line: Number(line) };
    return { file: site.scriptName.slice(site.scriptName.lastIndexOf("/") + 1), line: site.lineNumber };
  };
}
