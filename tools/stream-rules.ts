import { relative } from "node:path";
import type { Node, SourceFile } from "typescript/unstable/ast";
import * as is from "typescript/unstable/ast/is";
import { API, type Checker, type Type } from "typescript/unstable/sync";
import { createFacts } from "./stream-facts.ts";
import { keyOf, typeAt, unchained, unwrapped } from "./stream-names.ts";

/** Functions of Node that listen for errors of what they make: `execFile` gives them to its callback. */
const hearing = new Set(["pipeline", "execFile"]);

/** A stream, or another emitter of errors, at whose errors nothing listens. */
export interface UnheardStream {
  readonly file: string;
  readonly line: number;
  readonly name: string;
  readonly why: string;
}

/** Finds streams that are written to, and emitters that are made by Node or a package, at whose `error` event nothing listens: such an event
 *  ends the process. A listener counts in the same function or file, in a function that the stream is handed to, in the one that returned
 *  it, and by `pipeline` and `finished`. Responses count as heard where each HTTP server is given to `guardResponses`.
 *  @param config path of the tsconfig.json. @param files whose streams are looked at. */
export function unheardStreams(
  config: string,
  root: string,
  files: (name: string) => boolean,
): readonly UnheardStream[] {
  const api = new API({ cwd: root });
  try {
    const project = api.updateSnapshot({ openProjects: [config] }).getProjects()[0];
    if (!project) throw new Error(`${config} is no project`);
    const { program, checker } = project;
    const names = program.getSourceFileNames().filter((name) => files(relative(root, name)));
    const sources = names.flatMap((name) => program.getSourceFile(name) ?? []);
    const facts = createFacts(project);
    for (const source of sources) visit(source, (node) => facts.learn(node));
    const heard = facts.heard();
    return sources.flatMap((source) => {
      const found: UnheardStream[] = [];
      visit(source, (node) => {
        for (const { subject, why } of subjectsOf(node, checker)) {
          if (why !== unguardedResponses && (heard(keyOf(subject, checker)) || facts.isSelfHeard(subject))) continue;
          found.push({
            file: relative(root, source.fileName),
            line: lineOf(source, subject),
            name: nameOf(subject),
            why,
          });
        }
      });
      return distinct(found);
    });
  } finally {
    api.close();
  }
}

function distinct(found: readonly UnheardStream[]): readonly UnheardStream[] {
  return [...new Map(found.map((one) => [`${one.name} ${one.why}`, one])).values()];
}

function visit(node: Node, look: (node: Node) => void): void {
  look(node);
  node.forEachChild((child) => visit(child, look));
}

/** What has to be heard at a place. */
function subjectsOf(node: Node, checker: Checker): readonly { readonly subject: Node; readonly why: string }[] {
  if (is.isCallExpression(node) && is.isPropertyAccessExpression(node.expression)) {
    const { expression: receiver, name } = node.expression;
    const [first] = node.arguments;
    const subject = unchained(receiver);
    if ((name.text === "write" || name.text === "end") && isWritable(subject, checker))
      return [{ subject, why: "is written to, and nothing listens to its errors" }];
    if (name.text === "pipe" && first && isWritable(first, checker))
      return [{ subject: first, why: "is piped to, and nothing listens to its errors" }];
  }
  if (is.isCallExpression(node) && isHttpServer(node, checker) && !isGuard(node.parent))
    return [{ subject: node, why: unguardedResponses }];
  if (is.isVariableDeclaration(node) && node.initializer && is.isIdentifier(node.name)) {
    if (isMade(unchained(unguarded(node.initializer)), checker) && isEmitter(node.name, checker))
      return [{ subject: node.name, why: "is made here, and nothing listens to its errors" }];
  }
  return [];
}

/** The function by which an HTTP server's responses get their listener. */
const guard = "guardResponses";
const unguardedResponses = `serves responses without ${guard}`;

function isGuard(node: Node | undefined): boolean {
  return (
    node !== undefined &&
    is.isCallExpression(node) &&
    is.isIdentifier(node.expression) &&
    node.expression.text === guard
  );
}

function unguarded(node: Node): Node {
  const inner = unwrapped(node);
  return isGuard(inner) && is.isCallExpression(inner) ? (inner.arguments[0] ?? inner) : inner;
}

/** True for a call that makes an HTTP server. */
function isHttpServer(call: Node, checker: Checker): boolean {
  if (!isMade(call, checker) || !is.isCallExpression(call) || !is.isIdentifier(call.expression)) return false;
  const type = typeAt(call, checker);
  return type !== undefined && has(type, checker, "closeIdleConnections", "setTimeout");
}

/** True for an expression by which Node or a package makes something. */
function isMade(made: Node, checker: Checker): boolean {
  if (!is.isNewExpression(made) && !is.isCallExpression(made)) return false;
  if (is.isIdentifier(made.expression) && hearing.has(made.expression.text)) return false;
  const declaration = checker.getResolvedSignature(made)?.declaration;
  return declaration === undefined || /\/node_modules\//.test(declaration.path);
}

const has = (type: Type, checker: Checker, ...names: readonly string[]): boolean =>
  names.every((name) => checker.getPropertyOfType(type, name) !== undefined);

function isWritable(node: Node, checker: Checker): boolean {
  const type = typeAt(node, checker);
  return (
    type !== undefined && has(type, checker, "write", "end", "on", "emit", "destroy") && !isResponse(type, checker)
  );
}

/** True for an HTTP response: it has its listener from its server. */
function isResponse(type: Type, checker: Checker): boolean {
  return has(type, checker, "writeHead");
}

/** Emitters that emit no errors as they are used: events of one's own, digests, applications of express. */
const quiet = /^(EventEmitter|Hash|Hmac|Express|Application)$/;

/** True for what emits errors of its own: streams, servers, processes, sessions, workers. */
function isEmitter(node: Node, checker: Checker): boolean {
  const type = typeAt(node, checker);
  if (type === undefined || !has(type, checker, "on", "once", "emit", "removeListener")) return false;
  return !quiet.test(type.getSymbol()?.name ?? "");
}

function nameOf(node: Node): string {
  const inner = unchained(node);
  return inner.getText().slice(0, 40);
}

function lineOf(source: SourceFile, node: Node): number {
  return source.text.slice(0, node.getStart(source)).split("\n").length;
}
