import { posix } from "node:path";

/** Which part of the tree may import which; a part is a folder or a file of src, or `providers`. Imports point down:
 *  main ▷ commands ▷ process ▷ kubelet ▷ stages ▷ pod host api ▷ pipeline seams ▷ lib, and stages never import each other's code. */

const ground = ["pipeline", "resource-manager", "topology-hints", "roles", "objects", "seams", "lib", "gen", "version"];
const stage = ["pod", "host", "api", "state", ...ground];
const stages = [
  "sources",
  "admission",
  "sync",
  "runtime",
  "logs",
  "pleg",
  "remotedialer",
  "service-tunnel",
  "endpoint-publisher",
  "status",
  "probes",
  "volumes",
  "node",
  "allocation",
  "cgroups",
  "devices",
  "cpus",
  "memory-manager",
  "topology",
  "dra",
  "user-namespaces",
  "plugins",
  "pods-api",
  "csi",
  "eviction",
  "shutdown",
  "gc",
  "stats",
  "certificates",
  "remove",
  "leave",
  "metrics",
  "tracing",
];
const parts: Readonly<Record<string, readonly string[]>> = {
  lib: [],
  gen: [],
  version: [],
  objects: [],
  seams: ["lib", "gen"],
  pipeline: ["objects", "roles", "seams", "lib", "gen"],
  "resource-manager": ["pipeline", "topology-hints", "objects", "roles", "lib"],
  "topology-hints": ["lib"],
  roles: ["objects"],
  state: ["pod", ...ground],
  config: ["objects", "lib", "version"],
  pod: ground,
  host: ground,
  api: ["pod", ...ground],
  streams: ["lib", "seams"],
  server: [...stage, "streams"],
  ...Object.fromEntries(stages.map((name) => [name, stage])),
  report: [...stage, "server"],
  page: [...stage, "server", "report"],
  kubelet: [...stages, ...stage, "server", "report", "streams", "config"],
  doctor: ["service-tunnel", "node", "admission", "sources", "server", ...stage],
  fleet: ["leave", "node", "report", "config", ...stage],
  process: ["fleet", "kubelet", ...stages, ...stage, "server", "report", "page", "streams", "config"],
  commands: ["process", "fleet", "kubelet", "doctor", ...stages, ...stage, "report", "config"],
  providers: ["seams", "host", "lib", "gen", "streams", "objects", "pod"],
};

/** Parts whose metrics metrics/ implements: it may import their types. */
const measured = [...stages, "server"];
/** Parts that implement ports of stages: they may import the types of a stage's ports.ts. */
const implementers = [...stages, "api", "host"];

/** Packages that only these parts may import as values; types are free. */
const fenced: Readonly<Record<string, readonly string[]>> = {
  "@kubernetes/client-node": ["api"],
  express: ["server"],
  "@grpc/grpc-js": ["devices", "host", "pods-api", "tracing"],
  dockerode: ["providers"],
  ssh2: ["providers"],
  ws: ["streams", "remotedialer", "api"],
  "prom-client": ["metrics"],
  "@opentelemetry/api": ["tracing"],
  "@opentelemetry/core": ["tracing"],
  "@opentelemetry/otlp-transformer": ["tracing"],
  "@opentelemetry/resources": ["tracing"],
  "@opentelemetry/sdk-trace": ["tracing"],
  uplot: ["page"],
  esbuild: ["page"],
};

interface Import {
  readonly line: number;
  readonly from: string;
  readonly typeOnly: boolean;
}

/** What is wrong with a source file, a line each: `path:line: reason`. Pure.
 *  @param path relative to the repository, with forward slashes; only files under src and providers are judged. */
export function faultsOf(path: string, source: string): string[] {
  const part = partOf(path);
  if (part === undefined || path.startsWith("src/gen/")) return [];
  const code = withoutComments(source);
  const faults = importsOf(code).flatMap((found) => {
    const reason = importFault(path, part, found);
    return reason === undefined ? [] : [`${path}:${found.line}: ${reason}`];
  });
  return path === "src/lib/clock.ts" ? faults : [...faults, ...clockFaults(path, code)];
}

/** Import cycles, one per line: files that import each other directly or through others. Type imports count. Pure. @param sources by path. */
export function circlesOf(sources: ReadonlyMap<string, string>): string[] {
  const imported = new Map(
    [...sources].map(([path, source]) => [path, filesImportedBy(path, source).filter((file) => sources.has(file))]),
  );
  const done = new Set<string>();
  const circles: string[] = [];
  const visit = (file: string, way: readonly string[]) => {
    const at = way.indexOf(file);
    if (at >= 0) circles.push([...way.slice(at), file].join(" ▷ "));
    if (at >= 0 || done.has(file)) return;
    for (const next of imported.get(file) ?? []) visit(next, [...way, file]);
    done.add(file);
  };
  for (const file of sources.keys()) visit(file, []);
  return circles;
}

function filesImportedBy(path: string, source: string): readonly string[] {
  return importsOf(withoutComments(source))
    .filter(({ from }) => from.startsWith("."))
    .map(({ from }) => posix.join(posix.dirname(path), from));
}

/** The part that a file belongs to: its folder, or itself where it lies in src. Undefined outside src and providers. */
function partOf(path: string): string | undefined {
  if (path.startsWith("providers/")) return "providers";
  return /^src\/([^/]+?)(?:\.ts$|\/)/.exec(path)?.[1];
}

function importFault(path: string, part: string, found: Import): string | undefined {
  if (!found.from.startsWith(".")) return packageFault(part, found);
  const target = posix.join(posix.dirname(path), found.from);
  const other = partOf(target);
  if (other === undefined) return `${found.from} lies outside src and providers`;
  if (other === part || part === "main") return undefined;
  const allowed = parts[part];
  if (!allowed) return `src/${part} is not in the table of tools/import-rules.ts; add it with what it may import`;
  if (found.typeOnly && mayImportTypes(part, other, target)) return undefined;
  return allowed.includes(other) ? undefined : `${part} must not import ${other}${hint(part, other)}`;
}

function mayImportTypes(part: string, other: string, target: string): boolean {
  if (other === "config") return true;
  if (part === "metrics") return measured.includes(other);
  return implementers.includes(part) && stages.includes(other) && target === `src/${other}/ports.ts`;
}

function hint(part: string, other: string): string {
  if (other === "providers") return "; only src/main.ts knows the providers";
  return stages.includes(part) && parts[other] ? `; declare a port in src/${part} instead` : "";
}

function packageFault(part: string, found: Import): string | undefined {
  if (found.from === "node:timers" || found.from === "node:timers/promises")
    return "timers come from the Clock that is given";
  const name = /^(?:@[^/]+\/)?[^/]+/.exec(found.from)?.[0] ?? found.from;
  const owners = fenced[name];
  if (owners === undefined || owners.includes(part) || found.typeOnly) return undefined;
  return `only ${owners.join(" and ")} imports ${name} as a value; use import type or a seam`;
}

const statement = /\b(import|export)\b(\s+type\b)?(?:[^"';()]*?\bfrom)?\s*\(?\s*"([^"\n]+)"/g;

function importsOf(code: string): Import[] {
  return [...code.matchAll(statement)].map((match) => ({
    line: lineAt(code, match.index),
    from: match[3] ?? "",
    typeOnly: match[2] !== undefined,
  }));
}

const clockUse =
  /\bDate\.now\b|\bnew Date\(\s*\)|\bset(?:Timeout|Interval|Immediate)\s*\(|\bMath\.random\b|\bperformance\.now\b|\bAbortSignal\.timeout\b/g;

function clockFaults(path: string, code: string): string[] {
  const bare = code.replaceAll(/"(?:\\.|[^"\\\n])*"/g, '""');
  return [...bare.matchAll(clockUse)].map(
    (match) =>
      `${path}:${lineAt(bare, match.index)}: ${match[0]} belongs in src/lib/clock.ts; use the Clock that is given`,
  );
}

/** The source with comments blanked and lines kept; what looks like a comment inside a text stays. */
function withoutComments(source: string): string {
  const tokens = /"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`|\/\*[\s\S]*?\*\/|\/\/[^\n]*/g;
  return source.replaceAll(tokens, (token) => (token.startsWith("/") ? token.replaceAll(/[^\n]/g, " ") : token));
}

function lineAt(text: string, index: number): number {
  return text.slice(0, index).split("\n").length;
}
