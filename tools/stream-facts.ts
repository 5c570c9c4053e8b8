import { type Node, SyntaxKind } from "typescript/unstable/ast";
import * as is from "typescript/unstable/ast/is";
import type { Project, Type } from "typescript/unstable/sync";
import { keyOf, typeAt, unchained, unwrapped } from "./stream-names.ts";

/** Functions of Node that listen for errors of the streams that they get, and go on doing so. */
const guarding = new Set(["pipeline", "finished"]);
const listening = new Set(["on", "once", "addListener", "prependListener"]);

/** What is known of all files: who is listened to, and which names are of the same thing. */
export function createFacts(project: Project) {
  const { checker } = project;
  /** Classes whose instances listen to their own errors. */
  const selfHeard = new Set<string>();
  const direct = new Set<string>();
  /** What callers hand to each parameter: it is heard where all of that is. */
  const given = new Map<string, Set<string>>();
  /** Names from which being heard follows. */
  const follows = new Map<string, Set<string>>();
  const id = (node: Node | undefined): string | undefined => (node ? keyOf(node, checker) : undefined);
  const link = (heard: string | undefined, then: string | undefined) => {
    if (heard === undefined || then === undefined || heard === then) return;
    follows.set(heard, (follows.get(heard) ?? new Set()).add(then));
  };
  const same = (one: Node | undefined, other: Node | undefined) => {
    const [a, b] = [id(one), id(other)];
    link(a, b);
    link(b, a);
  };
  const listen = (node: Node | undefined) => {
    const symbol = id(node);
    if (symbol !== undefined) direct.add(symbol);
  };
  const learnCall = (call: Node) => {
    if (!is.isCallExpression(call) && !is.isNewExpression(call)) return;
    const { expression } = call;
    const args = call.arguments ?? [];
    const [first] = args;
    if (is.isPropertyAccessExpression(expression) && listening.has(expression.name.text)) {
      if (!first || !is.isStringLiteral(first) || first.text !== "error") return;
      if (expression.expression.kind === SyntaxKind.ThisKeyword) selfHeard.add(classAround(call));
      else listen(expression.expression);
      return;
    }
    const name = is.isIdentifier(expression) ? expression.text : "";
    if (guarding.has(name)) for (const each of args) listen(each);
    learnArguments(call, args);
  };
  const learnArguments = (call: Node, args: readonly Node[]) => {
    const streams = args.flatMap((arg, index) => (mayHold(arg) ? [{ arg, index }] : []));
    if (streams.length === 0) return;
    const declaration = checker.getResolvedSignature(call)?.declaration;
    if (!declaration || /\/node_modules\//.test(declaration.path)) return;
    const made = declaration.resolve(project);
    const parameters = made && is.isFunctionLikeDeclaration(made) ? made.parameters : [];
    for (const { arg, index } of streams) {
      const parameter = parameters[index]?.name;
      if (parameter && is.isIdentifier(parameter)) hand(id(arg), id(parameter));
      if (parameter && is.isObjectBindingPattern(parameter)) {
        if (is.isObjectLiteralExpression(arg)) handParts(arg, parameter);
        else handProperties(arg, parameter);
      }
    }
  };
  /** A stream that is handed to a function: a listener there counts for it, and one here for the function. */
  const hand = (arg: string | undefined, parameter: string | undefined) => {
    link(parameter, arg);
    if (parameter !== undefined) given.set(parameter, (given.get(parameter) ?? new Set()).add(arg ?? ""));
  };
  /** `f({ socket, to: other })` for `function f({ socket, to })`. */
  const handParts = (literal: Node, pattern: Node) => {
    if (!is.isObjectLiteralExpression(literal) || !is.isObjectBindingPattern(pattern)) return;
    for (const element of pattern.elements) {
      if (!element.name || !is.isIdentifier(element.name)) continue;
      const wanted = element.propertyName?.getText() ?? element.name.text;
      for (const part of literal.properties) {
        if (!("name" in part) || part.name?.getText() !== wanted) continue;
        if (is.isShorthandPropertyAssignment(part)) hand(id(part.name), id(element.name));
        if (is.isPropertyAssignment(part)) hand(id(part.initializer), id(element.name));
      }
    }
  };
  /** `f(process)` for `function f({ stdin })`. */
  const handProperties = (arg: Node, pattern: Node) => {
    if (!is.isObjectBindingPattern(pattern)) return;
    for (const element of pattern.elements) {
      if (!element.name || !is.isIdentifier(element.name)) continue;
      hand(
        propertyKey(arg, typeAt(arg, checker), element.propertyName?.getText() ?? element.name.text),
        id(element.name),
      );
    }
  };
  const propertyKey = (place: Node, type: Type | undefined, name: string): string | undefined => {
    const property = type && checker.getPropertyOfType(type, name);
    return property && `${place.getSourceFile().fileName} ${property.id}`;
  };
  /** A heard stream that becomes a property of an object is heard by that name, too. */
  const learnLiteral = (literal: Node) => {
    if (!is.isObjectLiteralExpression(literal)) return;
    const type = checker.getContextualType(literal);
    for (const part of literal.properties) {
      if (is.isShorthandPropertyAssignment(part)) link(id(part.name), propertyKey(part, type, part.name.getText()));
      if (is.isPropertyAssignment(part)) link(id(part.initializer), propertyKey(part, type, part.name.getText()));
    }
  };
  return {
    learn(node: Node) {
      learnCall(node);
      if (is.isVariableDeclaration(node) && node.initializer) {
        same(node.name, node.initializer);
        const made = unwrapped(node.initializer);
        if (isHeardChain(made)) listen(node.name);
        link(returnOf(made), id(node.name));
      }
      if (is.isReturnStatement(node) && node.expression) learnReturn(node, node.expression);
      if (is.isArrowFunction(node) && !is.isBlock(node.body)) learnReturn(node.body, node.body);
      if (is.isBinaryExpression(node) && node.operatorToken.kind === SyntaxKind.EqualsToken) {
        same(node.left, node.right);
        if (isHeardChain(unwrapped(node.right))) listen(node.left);
      }
      if (is.isForOfStatement(node)) learnLoop(node);
      learnLiteral(node);
      if (is.isPropertyAssignment(node)) same(node.name, node.initializer);
    },
    isSelfHeard(node: Node): boolean {
      const inner = unchained(node);
      const key = returnOf(inner);
      if (key !== undefined && direct.has(key)) return true;
      return selfHeard.has(typeAt(inner, checker)?.getSymbol()?.name ?? "");
    },
    heard(): (key: string | undefined) => boolean {
      const all = new Set<string>();
      const spread = (from: readonly string[]) => {
        const open = [...from];
        for (let key = open.pop(); key !== undefined; key = open.pop()) {
          if (all.has(key)) continue;
          all.add(key);
          open.push(...(follows.get(key) ?? []));
        }
      };
      spread([...direct]);
      for (let before = -1; before !== all.size; ) {
        before = all.size;
        spread([...given].filter(([, args]) => [...args].every((arg) => all.has(arg))).map(([parameter]) => parameter));
      }
      return (key) => key !== undefined && all.has(key);
    },
  };
  /** Key of what a function of the project returns. */
  function returnOf(call: Node): string | undefined {
    if (!is.isCallExpression(call)) return undefined;
    const declaration = checker.getResolvedSignature(call)?.declaration;
    if (!declaration || /\/node_modules\//.test(declaration.path)) return undefined;
    return `return ${declaration.path} ${declaration.index}`;
  }
  function learnReturn(node: Node, value: Node) {
    const around = functionAround(node);
    const declaration = around && checker.getSignatureFromDeclaration(around)?.declaration;
    if (!declaration) return;
    const key = `return ${declaration.path} ${declaration.index}`;
    if (isHeardChain(unwrapped(value))) direct.add(key);
    link(id(value), key);
    link(returnOf(unwrapped(value)), key);
  }
  /** `for (const half of [from, to])`, also by a Set. */
  function learnLoop(loop: Node) {
    if (!is.isForOfStatement(loop) || !is.isVariableDeclarationList(loop.initializer)) return;
    const over = unwrapped(loop.expression);
    const list = is.isNewExpression(over) ? over.arguments?.[0] : over;
    const [declared] = loop.initializer.declarations;
    if (!list || !declared || !is.isArrayLiteralExpression(list)) return;
    for (const element of list.elements) link(id(declared.name), id(element));
  }
}

function classAround(node: Node): string {
  let at: Node | undefined = node;
  while (at && !is.isClassDeclaration(at)) at = at.parent;
  return at?.name?.text ?? "";
}

function functionAround(node: Node): Node | undefined {
  let at: Node | undefined = node;
  while (at && !is.isFunctionLikeDeclaration(at)) at = at.parent;
  return at;
}

/** True for an argument that may be, or have, a stream. */
function mayHold(node: Node): boolean {
  return is.isIdentifier(node) || is.isPropertyAccessExpression(node) || is.isObjectLiteralExpression(node);
}

/** True for a chain with a listener for errors in it: `createServer(…).on("error", …)`. */
function isHeardChain(node: Node): boolean {
  for (let inner: Node = node; is.isCallExpression(inner) && is.isPropertyAccessExpression(inner.expression); ) {
    const [first] = inner.arguments;
    if (listening.has(inner.expression.name.text) && first && is.isStringLiteral(first) && first.text === "error")
      return true;
    inner = unwrapped(inner.expression.expression);
  }
  return false;
}
