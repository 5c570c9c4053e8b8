import { globSync, readFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { join } from "node:path";
import type { Node } from "typescript/unstable/ast";
import * as is from "typescript/unstable/ast/is";
import type { Mistake, Place } from "./mistake.ts";
import { descendants, type Program } from "./program.ts";

/** A file with a mistake in it. */
export interface Mistaken {
  /** Relative to the checkout. */
  readonly file: string;
  readonly before: string;
  readonly after: string;
}

type PlaceAbout = Extract<Place, { about: string }>;

/** Makes a mistake, in memory.
 *  @param at as in `Fault.in`; a glob contains a slash.
 *  @throws Error unless there is just one such place, and the file still parses. */
export function makeMistake(program: Program, at: string, mistake: Mistake): Mistaken {
  if (at.includes("/")) return inOtherLanguage(program.root, at, mistake);
  const { file, source, node } = program.declaration(at);
  const before = source.text;
  const edits = [node, source].map((scope) => editsIn(scope, mistake)).find((found) => found.length > 0) ?? [];
  const [edit, ...more] = edits;
  if (!edit || more.length > 0) throw new Error(`${describe(mistake.place)} is found ${edits.length} times in ${at}`);
  const after = before.slice(0, edit.from) + edit.code + before.slice(edit.to);
  checkNames(mistake, source, file);
  stripTypeScriptTypes(after);
  if (after === before) throw new Error(`${describe(mistake.place)} in ${at} stays as it is`);
  return { file, before, after };
}

/** The lines that a mistake changes, without their indentation. */
export function changedLines({ before, after }: Mistaken): { readonly before: string; readonly after: string } {
  const [old, now] = [before.split("\n"), after.split("\n")];
  const start = old.findIndex((line, at) => line !== now[at]);
  const end = old.toReversed().findIndex((line, at) => line !== now.at(-1 - at));
  const lines = (all: readonly string[]) =>
    all
      .slice(start, Math.max(all.length - end, start + 1))
      .map((line) => line.trim())
      .join(" ");
  return { before: lines(old), after: lines(now) };
}

function inOtherLanguage(root: string, pattern: string, mistake: Mistake): Mistaken {
  const [file, ...others] = globSync(pattern, { cwd: root });
  if (file === undefined || others.length > 0)
    throw new Error(`${pattern} matches ${file === undefined ? "no file" : [file, ...others].join(", ")}`);
  const before = readFileSync(join(root, file), "utf8");
  const [edit, ...more] = textEdits(before, 0, mistake);
  if (!edit || more.length > 0) throw new Error(`${describe(mistake.place)} is not found once in ${file}`);
  return { file, before, after: before.slice(0, edit.from) + edit.code + before.slice(edit.to) };
}

/** Code for a part of a file. */
interface Edit {
  readonly from: number;
  readonly to: number;
  readonly code: string;
}

function editsIn(scope: Node, mistake: Mistake): readonly Edit[] {
  if (mistake.place.kind === "text") return textEdits(scope.getText(), scope.getStart(), mistake);
  return nodesAt(scope, mistake.place).map((node) => editOf(node, mistake));
}

function textEdits(content: string, offset: number, mistake: Mistake): readonly Edit[] {
  if (mistake.place.kind !== "text") throw new Error(`${describe(mistake.place)} is a place in TypeScript`);
  const { text } = mistake.place;
  const code = mistake.kind === "become" ? mistake.code : "";
  return [...content.matchAll(new RegExp(RegExp.escape(text), "g"))].map(({ index }) => ({
    from: offset + index,
    to: offset + index + text.length,
    code,
  }));
}

function editOf(node: Node, mistake: Mistake): Edit {
  const [from, to] = [node.getStart(), node.end];
  if (mistake.kind === "negate") return { from, to, code: `!(${node.getText()})` };
  if (mistake.kind === "become") return { from, to, code: mistake.code.replaceAll("$", () => node.getText()) };
  if (mistake.place.kind === "operand") return withoutOperand(node);
  if (mistake.place.kind === "call") return { from, to, code: "undefined" };
  return withoutElement(node);
}

/** The other operand alone. */
function withoutOperand(node: Node): Edit {
  const { parent } = node;
  if (!is.isBinaryExpression(parent)) throw new Error(`${node.getText()} is no operand`);
  const kept = parent.left === node ? parent.right : parent.left;
  return { from: parent.getStart(), to: parent.end, code: kept.getText() };
}

/** Without an element of a list, and the comma after it, or before it if it is the last. */
function withoutElement(node: Node): Edit {
  const list = listOf(node.parent);
  const at = list.indexOf(node);
  const [previous, next] = [list[at - 1], list[at + 1]];
  if (next) return { from: node.getStart(), to: next.getStart(), code: "" };
  return { from: previous?.end ?? node.getStart(), to: node.end, code: "" };
}

function listOf(node: Node): readonly Node[] {
  if (is.isArrayLiteralExpression(node)) return node.elements;
  if (is.isObjectLiteralExpression(node)) return node.properties;
  if (is.isCallExpression(node) || is.isNewExpression(node)) return node.arguments ?? [];
  throw new Error(`${node.getText()} is no list`);
}

function nodesAt(scope: Node, place: Exclude<Place, { kind: "text" }>): readonly Node[] {
  const all = descendants(scope);
  switch (place.kind) {
    case "property":
      return all.flatMap((node) =>
        is.isPropertyAssignment(node) && nameOf(node.name) === place.name ? [node.initializer] : [],
      );
    case "value":
      return all.flatMap((node) =>
        is.isVariableDeclaration(node) && nameOf(node.name) === place.name ? (node.initializer ?? []) : [],
      );
    case "call":
      return all.filter((node) => callee(node) === place.name);
    case "argument":
      return all.flatMap((node) =>
        is.isCallExpression(node) && callee(node) === place.call ? (node.arguments[place.nth - 1] ?? []) : [],
      );
    default:
      return innermost(all, place);
  }
}

function innermost(all: readonly Node[], place: PlaceAbout): readonly Node[] {
  const { about, nth } = place;
  const matching = all.flatMap((node) => partsOf(node, place)).filter((node) => speaksOf(node, about));
  const found = matching.filter((node) => !matching.some((other) => other !== node && contains(node, other)));
  return nth === undefined ? found : found.slice(nth - 1, nth);
}

/** Parts of a node that are places of this kind. */
function partsOf(node: Node, place: PlaceAbout): readonly Node[] {
  switch (place.kind) {
    case "condition":
      if (is.isConditionalExpression(node)) return [node.condition];
      return is.isIfStatement(node) || is.isWhileStatement(node) ? [node.expression] : [];
    case "operand":
      if (!is.isBinaryExpression(node) || node.operatorToken.getText() !== place.of) return [];
      return [node.left, node.right].filter((side) => !isOfSame(side, place.of));
    case "element":
      return is.isArrayLiteralExpression(node) ? node.elements : [];
    case "entry":
      return is.isObjectLiteralExpression(node) ? node.properties : [];
    case "result":
      return is.isReturnStatement(node) && node.expression ? [node.expression] : [];
  }
}

/** True for `a && b` in `a && b && c`. */
function isOfSame(node: Node, operator: string): boolean {
  return is.isBinaryExpression(node) && node.operatorToken.getText() === operator;
}

function contains(outer: Node, inner: Node): boolean {
  return outer.pos <= inner.pos && inner.end <= outer.end;
}

/** True if an identifier or a literal in the code is just this. */
function speaksOf(node: Node, about: string): boolean {
  return descendants(node).some((part) => "text" in part && part.text === about);
}

function nameOf(node: Node): string {
  return "text" in node ? String(node.text) : node.getText();
}

/** The last name of what is called. */
function callee(node: Node): string | undefined {
  if (!is.isCallExpression(node)) return undefined;
  const { expression } = node;
  return is.isPropertyAccessExpression(expression) ? expression.name.text : expression.getText();
}

/** Names that need no declaration. */
const known = new Set(["true", "false", "undefined", "new", "Map"]);

/** A name that is renamed in the file would otherwise be a mistake of another kind. */
function checkNames(mistake: Mistake, source: Node, file: string): void {
  if (mistake.kind !== "become" || mistake.place.kind === "text") return;
  const bare = mistake.code.replaceAll(/"[^"]*"/g, "");
  const names = [...bare.matchAll(/(?<![.\w])[A-Za-z_]\w*(?!\w|\s*:)/g)].map(([name]) => name);
  const unknown = names.filter((name) => !known.has(name) && !speaksOf(source, name));
  if (unknown.length > 0) throw new Error(`${file} has no ${unknown.join(", ")}`);
}

function describe(place: Place): string {
  const { kind, ...rest } = place;
  const words = Object.values(rest).filter((word) => word !== undefined);
  return `${kind} ${words.join(", ")}`;
}
