import type { Node } from "typescript/unstable/ast";
import * as is from "typescript/unstable/ast/is";
import type { Checker, Symbol as TypeSymbol, Type } from "typescript/unstable/sync";

/** Methods that return what they are called on. */
const chained = new Set([
  "on",
  "once",
  "addListener",
  "prependListener",
  "setEncoding",
  "setTimeout",
  "setNoDelay",
  "setKeepAlive",
]);
const chainedToo = new Set(["pause", "resume", "ref", "unref", "listen", "writeHead", "setHeader"]);

/** Without parentheses, `await`, `as` and the like. */
export function unwrapped(node: Node): Node {
  let inner = node;
  for (;;) {
    if (is.isParenthesizedExpression(inner) || is.isAwaitExpression(inner)) inner = inner.expression;
    else if (is.isAsExpression(inner) || is.isSatisfiesExpression(inner)) inner = inner.expression;
    else return inner;
  }
}

/** What a chain of calls such as `socket.setEncoding("utf8").on(…)` begins with. */
export function unchained(node: Node): Node {
  let inner = unwrapped(node);
  while (is.isCallExpression(inner) && is.isPropertyAccessExpression(inner.expression)) {
    const { text } = inner.expression.name;
    if (!chained.has(text) && !chainedToo.has(text)) break;
    inner = unwrapped(inner.expression.expression);
  }
  return inner;
}

function symbolOf(node: Node, checker: Checker): TypeSymbol | undefined {
  const inner = unchained(node);
  const at = is.isPropertyAccessExpression(inner) ? inner.name : inner;
  if (!is.isIdentifier(at) && !is.isPrivateIdentifier(at)) return undefined;
  const parent = at.parent;
  if (parent && is.isShorthandPropertyAssignment(parent)) return checker.getShorthandAssignmentValueSymbol(parent);
  return checker.getSymbolAtLocation(at);
}

/** Identifies what an expression names: a variable or private field, or, in one file, a property of whatever object. */
export function keyOf(node: Node, checker: Checker): string | undefined {
  const symbol = symbolOf(node, checker);
  if (!symbol) return undefined;
  const inner = unchained(node);
  if (!is.isPropertyAccessExpression(inner) || is.isPrivateIdentifier(inner.name)) return `${symbol.id}`;
  const isOfProcess = is.isIdentifier(inner.expression) && inner.expression.text === "process";
  return isOfProcess ? `process ${symbol.id}` : `${inner.getSourceFile().fileName} ${symbol.id}`;
}

export function typeAt(node: Node, checker: Checker): Type | undefined {
  const type = checker.getTypeAtLocation(node);
  return type && (checker.getNonNullableType(type) ?? type);
}
