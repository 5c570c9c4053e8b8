import { parseAllDocuments } from "yaml";
import { CodedError } from "../lib/errors.ts";
import { isRecord, recordIn } from "../lib/record.ts";
import type { Fields } from "./pod-fields.ts";

/** Maximum bytes of a manifest from a file or a URL. The API server's limit for an object is slightly larger; a pod of that size could
 *  never have a mirror pod. */
export const maxManifestBytes = 1 << 20;

/** Maximum nesting depth: that of a pod's deepest field, with margin. Deeper nesting is rejected because it could exhaust the stack. */
const maxDepth = 100;
/** Limits of characters and values in a manifest, with aliases expanded. */
const maxExtent = 4 << 20;

/** Parses the object of a manifest, as YAML 1.1 (which includes JSON), like Kubernetes. A MiB of YAML takes seconds: see
 *  `openManifestReader`. @throws CodedError invalid_argument, one sentence, for anything but one object. */
export function manifestObject(text: string): Fields {
  if (text.trim() === "") throw unusable("it is empty");
  const object = jsonIn(text) ?? yamlIn(text);
  checkExtent(object);
  return object;
}

function yamlIn(text: string): Fields {
  const parsed = parseAllDocuments(text, { version: "1.1", schema: "yaml-1.1", prettyErrors: true });
  const documents = Array.isArray(parsed) ? parsed : [];
  const fault = documents.flatMap(({ errors }) => errors)[0];
  if (fault?.code === "RESOURCE_EXHAUSTION") throw tooDeep();
  if (fault) throw unusable(`it is not YAML: ${(fault.message.split("\n")[0] ?? "").replace(/:$/, "")}`);
  const filled = documents.filter(({ contents }) => contents !== null);
  if (filled.length > 1) throw unusable("it contains several documents: put each pod in its own file");
  const value = objectIn(filled[0]);
  if (Array.isArray(value)) throw unusable("it contains a list: put each pod in its own file");
  if (!isRecord(value)) throw unusable("it contains no object: write apiVersion, kind, metadata and spec");
  return value;
}

/** Parses an object in JSON, a hundred times faster than as YAML. */
function jsonIn(text: string): Fields | undefined {
  return text.trimStart().startsWith("{") ? recordIn(text) : undefined;
}

/** At most a hundred aliases are followed: a small file must not become a large object. */
function objectIn(document: { toJS(): unknown } | undefined): unknown {
  try {
    return document?.toJS();
  } catch (cause) {
    throw unusable("its aliases cannot be expanded: write out their values", { cause });
  }
}

/** Checks nesting depth and size, with aliases expanded. */
function checkExtent(object: Fields): void {
  const rest: { readonly value: unknown; readonly depth: number }[] = [{ value: object, depth: 0 }];
  let extent = 0;
  for (let one = rest.pop(); one; one = rest.pop()) {
    const { value, depth } = one;
    if (depth > maxDepth) throw tooDeep();
    extent += typeof value === "string" ? value.length : 1;
    if (typeof value === "object" && value !== null)
      for (const [name, part] of Object.entries(value)) {
        extent += name.length;
        rest.push({ value: part, depth: depth + 1 });
      }
    if (extent > maxExtent) throw unusable("it is too large: make it smaller, and write aliases out");
  }
}

function tooDeep(): CodedError {
  return unusable(`its values are nested more than ${maxDepth} levels deep, which no pod needs`);
}

/** Checks an object's apiVersion and kind. @param kind the expected kind. @throws CodedError invalid_argument */
export function expectKind({ apiVersion, kind }: Fields, expected: string): void {
  if (apiVersion !== "v1")
    throw unusable(`its apiVersion is ${JSON.stringify(apiVersion) ?? "missing"}: write apiVersion: v1`);
  if (kind === expected) return;
  if (kind === "List" || kind === "PodList") throw unusable(`it is a ${kind}: put each pod in its own file`);
  throw unusable(`its kind is ${JSON.stringify(kind) ?? "missing"}: write kind: ${expected}`);
}

export function unusable(why: string, options?: ErrorOptions): CodedError {
  return new CodedError("invalid_argument", why, options);
}
