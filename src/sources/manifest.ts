import { parseAllDocuments } from "yaml";
import { CodedError } from "../lib/errors.ts";
import { type Fields, isFields } from "./pod-fields.ts";

/** What a manifest holds. Read as YAML 1.1, of which JSON is a part, as Kubernetes does.
 *  @throws CodedError invalid_argument, one sentence, for what is not one object. */
export function manifestObject(text: string): Fields {
  if (text.trim() === "") throw unusable("it is empty: write a pod into it");
  const json = jsonIn(text);
  if (json) return json;
  const parsed = parseAllDocuments(text, { version: "1.1", schema: "yaml-1.1", prettyErrors: true });
  const documents = Array.isArray(parsed) ? parsed : [];
  const fault = documents.flatMap(({ errors }) => errors)[0];
  if (fault) throw unusable(`it is not YAML: ${(fault.message.split("\n")[0] ?? "").replace(/:$/, "")}`);
  const filled = documents.filter(({ contents }) => contents !== null);
  if (filled.length > 1) throw unusable("it holds several documents: give each pod a file of its own");
  const value = objectIn(filled[0]);
  if (Array.isArray(value)) throw unusable("it holds a list: give each pod a file of its own");
  if (!isFields(value)) throw unusable("it holds no object: write apiVersion, kind, metadata and spec");
  return value;
}

/** An object in JSON, which is read as such a hundred times faster: a list of pods must not hold up the whole process. */
function jsonIn(text: string): Fields | undefined {
  if (!text.trimStart().startsWith("{")) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return isFields(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Aliases are followed a hundred times at most: a small file must not become a large object. */
function objectIn(document: { toJS(): unknown } | undefined): unknown {
  try {
    return document?.toJS();
  } catch (cause) {
    throw unusable("its aliases cannot be followed: write out what they stand for", { cause });
  }
}

/** Checks what an object says it is. @param kind as it should be. @throws CodedError invalid_argument */
export function expectKind({ apiVersion, kind }: Fields, expected: string): void {
  if (apiVersion !== "v1")
    throw unusable(`its apiVersion is ${JSON.stringify(apiVersion) ?? "missing"}: write apiVersion: v1`);
  if (kind === expected) return;
  if (kind === "List" || kind === "PodList") throw unusable(`it is a ${kind}: give each pod a file of its own`);
  throw unusable(`its kind is ${JSON.stringify(kind) ?? "missing"}: write kind: ${expected}`);
}

export function unusable(why: string, options?: ErrorOptions): CodedError {
  return new CodedError("invalid_argument", why, options);
}
