import { fileEntry, tarOf } from "./archive.ts";
import type { NodeProgram } from "./node-package.ts";

/** What a tarball is made of, beside Node. */
export interface Built {
  /** dist/graftlet.mjs, whose first line says how Node is run. */
  readonly program: Buffer;
  readonly notices: Buffer;
  readonly license: Buffer;
}

/** The tar archive of one folder: the program, Node, what starts the one with the other, and licences.
 *  @param date of all files, seconds since the epoch. */
export function tarballOf(folder: string, built: Built, node: NodeProgram, date: number): Promise<Buffer> {
  const file = (name: string, data: Buffer | string, mode = 0o644) => fileEntry(`${folder}/${name}`, data, mode, date);
  return tarOf([
    file("LICENSE", built.license),
    file("LICENSE-node", node.license),
    file("THIRD-PARTY-NOTICES.txt", built.notices),
    file("graftlet", launcherOf(built.program.toString("latin1", 0, 1024)), 0o755),
    file("graftlet.mjs", built.program),
    file("node", node.program, 0o755),
  ]);
}

/** The script that runs the program with the Node beside it, as the program's first line says. Pure.
 *  @param program its beginning, with that line. @throws when that line is another than it was. */
export function launcherOf(program: string): string {
  const [, variables, flags] = /^#!\/usr\/bin\/env -S ((?:\w+=\S+ )*)node (.*)\n/.exec(program) ?? [];
  if (variables === undefined || flags === undefined)
    throw new Error(`the first line of dist/graftlet.mjs does not say how Node is run: build it with "make build"`);
  const exports = variables
    .trim()
    .split(" ")
    .map((variable) => `export ${variable}\n`);
  return `#!/bin/sh
# Runs graftlet with the Node beside it.
here=$(dirname "$(readlink -f "$0")")
${exports.join("")}exec "$here/node" ${flags} "$here/graftlet.mjs" "$@"
`;
}
