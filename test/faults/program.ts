import { join, relative } from "node:path";
import type { Node, SourceFile } from "typescript/unstable/ast";
import * as is from "typescript/unstable/ast/is";
import { API } from "typescript/unstable/sync";

/** The TypeScript of a checkout, parsed. */
export interface Program {
  readonly root: string;
  /** The declaration at a path of names, `createLink.open`: the first at the top level of a file, each other within the one before.
   *  @throws Error unless there is just one. */
  readonly declaration: (path: string) => Declaration;
  readonly [Symbol.dispose]: () => void;
}

export interface Declaration {
  /** Relative to the checkout. */
  readonly file: string;
  readonly source: SourceFile;
  readonly node: Node;
}

/** Only syntax is read: no types, and no packages. */
const settings = {
  compilerOptions: { noLib: true, noResolve: true, types: [], noEmit: true, allowImportingTsExtensions: true },
  include: ["src", "providers", "tools"],
  exclude: ["tools/node_modules", "tools/site", "src/gen"],
};

/** Parses a checkout, in about a second. */
export function parseProgram(root: string): Program {
  const config = join(root, "tsconfig.faults.json");
  const isConfig = (path: string) => path === config;
  const api = new API({
    cwd: root,
    fs: {
      readFile: (path) => (isConfig(path) ? JSON.stringify(settings) : undefined),
      fileExists: (path) => (isConfig(path) ? true : undefined),
    },
  });
  const project = api.updateSnapshot({ openProjects: [config] }).getProjects()[0];
  if (!project) throw new Error(`the sources in ${root} cannot be parsed`);
  const declared = Map.groupBy(
    project.program.getSourceFileNames().flatMap((name) => {
      const source = project.program.getSourceFile(name);
      return source ? declarationsIn(source, relative(root, name)) : [];
    }),
    ({ name }) => name,
  );
  return {
    root,
    declaration(path) {
      const [first = "", ...inner] = path.split(".");
      const { file, source, node } = only(declared.get(first) ?? [], path, ({ file }) => file);
      return { file, source, node: inner.reduce((outer, name) => only(namedIn(outer, name), path), node) };
    },
    [Symbol.dispose]: () => api.close(),
  };
}

interface NamedDeclaration extends Declaration {
  readonly name: string;
}

/** What stands at the top level of a file by a name of its own. */
function declarationsIn(source: SourceFile, file: string): NamedDeclaration[] {
  return source.statements.flatMap((statement): NamedDeclaration[] => {
    const nodes: readonly Node[] = is.isVariableStatement(statement)
      ? statement.declarationList.declarations
      : [statement];
    return nodes.flatMap((node) => {
      const name = declaredName(node);
      return name === undefined ? [] : [{ name, file, source, node }];
    });
  });
}

function declaredName(node: Node): string | undefined {
  const declares =
    is.isVariableDeclaration(node) ||
    is.isFunctionDeclaration(node) ||
    is.isClassDeclaration(node) ||
    is.isMethodDeclaration(node) ||
    is.isPropertyDeclaration(node) ||
    is.isPropertyAssignment(node);
  return declares ? node.name?.getText() : undefined;
}

function namedIn(outer: Node, name: string): Node[] {
  return descendants(outer).filter((node) => node !== outer && declaredName(node) === name);
}

/** The node and all below it, in their order. */
export function descendants(node: Node): Node[] {
  const found = [node];
  node.forEachChild((child) => void found.push(...descendants(child)));
  return found;
}

function only<Item>(items: readonly Item[], name: string, where: (item: Item) => string = () => "one place"): Item {
  const [first, ...more] = items;
  if (first === undefined) throw new Error(`nothing is declared as ${name}`);
  if (more.length > 0) throw new Error(`${name} is declared ${items.length} times: ${items.map(where).join(", ")}`);
  return first;
}
