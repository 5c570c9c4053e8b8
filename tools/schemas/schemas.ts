import { createHash } from "node:crypto";
import { existsSync, globSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { parse } from "yaml";
import { customSchemas, type Definition } from "./custom-resources.ts";
import type { SchemaFiles } from "./json-schema.ts";
import { moduleFolder } from "./modules.ts";
import { closureOf, type OpenApi, schemasOf } from "./openapi.ts";

const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/** The folder of strict schemas of all objects that the API server takes, and the Prometheus operator. Made once per version of the two
 *  and of this program, in seconds: ~/.cache/graftlet/schemas. */
export async function schemaFolder(): Promise<string> {
  const caches = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "graftlet", "schemas");
  const folder = join(caches, key());
  if (existsSync(folder)) return folder;
  mkdirSync(caches, { recursive: true });
  const partial = mkdtempSync(join(caches, ".partial-"));
  try {
    write(partial, await schemas());
    // Another process may have made the same.
    if (!existsSync(folder)) renameSync(partial, folder);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
  return folder;
}

/** Same files, same schemas. */
function key(): string {
  const hash = createHash("sha256");
  const names = globSync("{*.ts,go.mod}", { cwd: import.meta.dirname }).toSorted();
  for (const name of names) hash.update(name).update(readFileSync(join(import.meta.dirname, name)));
  return hash.digest("hex").slice(0, 16);
}

async function schemas(): Promise<SchemaFiles> {
  const kubernetes = join(await moduleFolder("k8s.io/kubernetes"), "api", "openapi-spec", "v3");
  const documents = read(kubernetes, "*_openapi.json", (text) => JSON.parse(text) as OpenApi);
  const operator = await moduleFolder("github.com/prometheus-operator/prometheus-operator");
  const folder = join(operator, "example", "prometheus-operator-crd");
  const definitions = read(folder, "*.yaml", (text) => parse(text) as Definition);
  const withMeta = documents.find(({ components }) => components?.schemas?.[objectMeta]);
  const metadata = { name: objectMeta, definitions: closureOf(objectMeta, withMeta?.components?.schemas ?? {}) };
  return new Map([...schemasOf(documents), ...customSchemas(definitions, metadata)]);
}

function read<T>(folder: string, pattern: string, parsed: (text: string) => T): T[] {
  const names = globSync(pattern, { cwd: folder }).toSorted();
  if (names.length === 0) throw new Error(`${folder} has no ${pattern}`);
  return names.map((name) => parsed(readFileSync(join(folder, name), "utf8")));
}

function write(folder: string, files: SchemaFiles): void {
  for (const [name, schema] of files) {
    mkdirSync(join(folder, dirname(name)), { recursive: true });
    writeFileSync(join(folder, name), JSON.stringify(schema));
  }
}
