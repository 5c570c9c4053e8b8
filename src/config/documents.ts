import { type Document, parseAllDocuments } from "yaml";
import { isRecord } from "../lib/record.ts";
import type { ConfigDocument } from "./decode.ts";
import { messageOf } from "../lib/errors.ts";
import { refuse } from "./refusal.ts";

/** Access of the configuration code to graftlet's own machine. */
export interface ConfigIo {
  /** @throws the errors of `fs.readFileSync`. */
  readFile(path: string): string;
  /** Files at any depth below a directory, as relative paths. @throws the errors of `fs.readdirSync`. */
  listDir(path: string): readonly string[];
  /** True for a file that may be run as a program. */
  isExecutable(path: string): boolean;
  hostname(): string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

const reasons: Readonly<Record<string, string>> = {
  ENOENT: "there is no such file; set the path of an existing one",
  ENOTDIR: "a parent of the path is a file; correct the path",
  EISDIR: "it is a directory; set the path of a file",
  EACCES: "this user cannot read it; change its mode or owner",
};

/** Error for an unreadable file. @param setting the flag or field that names the file. */
export function unreadable(setting: string, path: string, error: unknown): Error {
  const errno = error instanceof Error && "code" in error ? String(error.code) : "";
  return refuse(setting, path, reasons[errno] ?? `it cannot be read (${messageOf(error)})`);
}

/** Text of a file. @throws CodedError invalid_argument that names the setting of the file. */
export function readSettingFile(io: ConfigIo, setting: string, path: string): string {
  try {
    return io.readFile(path);
  } catch (error) {
    throw unreadable(setting, path, error);
  }
}

/** Reads a YAML 1.1 or JSON file that contains one object. As in Kubernetes, YAML 1.1 applies: 0777 is octal, yes is true. @throws
 *  CodedError invalid_argument */
export function readDocument(io: ConfigIo, setting: string, path: string): ConfigDocument {
  return documentIn(readSettingFile(io, setting, path), setting, path);
}

/** The object in a file's text, as `readDocument` reads it. @throws CodedError invalid_argument */
export function documentIn(text: string, setting: string, path: string): ConfigDocument {
  const documents = parseAllDocuments(text, {
    version: "1.1",
    schema: "yaml-1.1",
    prettyErrors: true,
  });
  const [document, second] = Array.isArray(documents) ? documents : [];
  if (second) throw refuse(setting, path, "the file contains several documents; keep one");
  const fault = document?.errors[0]?.message.split("\n")[0]?.replace(/:$/, "");
  if (fault) throw refuse(setting, path, `the file is not valid YAML: ${fault}`);
  const wire =
    document && readValue(document, (fault) => refuse(setting, path, `the file is not valid YAML: ${fault}`));
  if (!isRecord(wire)) throw refuse(setting, path, "the file does not contain an object; write fields as name: value");
  return wire;
}

/** Limit of alias expansion: many nodes of one file may share a part through an alias, but nested aliases must not grow without bounds.
 *  */
const maxAliasCount = 10_000;

function readValue(document: Document, refused: (fault: string) => Error): unknown {
  try {
    return document.toJS({ maxAliasCount });
  } catch (error) {
    throw refused(messageOf(error));
  }
}

export interface DocumentKind {
  readonly apiVersion: string;
  readonly kind: string;
}

/** A document of one kind, without its apiVersion and kind. @throws CodedError invalid_argument */
export function readKind(io: ConfigIo, setting: string, path: string, expected: DocumentKind): ConfigDocument {
  return checkKind(`${path}: `, readDocument(io, setting, path), expected);
}

/** The rest of a document, after checking its kind. @param where prefix of the error. @throws CodedError invalid_argument */
export function checkKind(where: string, document: ConfigDocument, expected: DocumentKind): ConfigDocument {
  const { apiVersion, kind, ...wire } = document;
  for (const [name, given, right] of [
    ["apiVersion", apiVersion, expected.apiVersion],
    ["kind", kind, expected.kind],
  ] as const) {
    if (given !== right) throw refuse(`${where}${name}`, given ?? null, `write ${name}: ${right}`);
  }
  return wire;
}
