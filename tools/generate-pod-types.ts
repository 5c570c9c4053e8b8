import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

// Writes src/gen/pod-types.ts: the types of the fields below a pod's spec, from the API models of @kubernetes/client-node.
// Run again when that package is raised: node tools/generate-pod-types.ts

const root = join(import.meta.dirname, "..");
const models = join(root, "node_modules/@kubernetes/client-node/dist/gen/models");

interface Attribute {
  readonly baseName: string;
  readonly type: string;
}
type Model = { getAttributeTypeMap(): readonly Attribute[] };

/** Fields that are quantities, which a manifest may write as numbers; the models call them texts. */
const quantities = new Set(["limits", "requests", "sizeLimit", "divisor"]);

const types: Record<string, Record<string, string>> = {};
const todo = ["V1PodSpec"];
for (let name = todo.pop(); name !== undefined; name = todo.pop()) {
  if (types[name]) continue;
  const module = (await import(pathToFileURL(join(models, `${name}.js`)).href)) as Record<string, Model>;
  const fields: Record<string, string> = {};
  for (const { baseName, type } of module[name]?.getAttributeTypeMap() ?? []) {
    const [, prefix = "", inner = ""] = /^(Array<)(.*)>$/.exec(type) ??
      /^(\{ \[key: string\]: )(.*); \}$/.exec(type) ?? [type, "", type];
    if (existsSync(join(models, `${inner}.js`)) && inner !== "IntOrString") todo.push(inner);
    const value = quantities.has(baseName) ? "Quantity" : inner === "Date" ? "string" : inner;
    fields[baseName] = `${prefix === "" ? "" : prefix === "Array<" ? "[]" : "{}"}${value}`;
  }
  types[name] = fields;
}
const sorted = Object.fromEntries(Object.entries(types).sort(([a], [b]) => a.localeCompare(b)));
const text = `// Written by tools/generate-pod-types.ts from @kubernetes/client-node.
/** Fields of each type below a pod's spec: [] leads the items of a list, {} the values of a map. */
export const podTypes: Readonly<Record<string, Readonly<Record<string, string>>>> = ${JSON.stringify(sorted, undefined, 1)};
`;
writeFileSync(join(root, "src/gen/pod-types.ts"), text);
