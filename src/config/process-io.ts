import { accessSync, constants, readdirSync, readFileSync, statSync } from "node:fs";
import { hostname } from "node:os";
import { join, relative } from "node:path";
import type { ConfigIo } from "./documents.ts";

/** Files, host name and environment of the process itself. */
export function processIo(): ConfigIo {
  return {
    readFile: (path) => readFileSync(path, "utf8"),
    listDir: (path) =>
      readdirSync(path, { recursive: true, withFileTypes: true })
        .filter((entry) => !entry.isDirectory())
        .map((entry) => relative(path, join(entry.parentPath, entry.name))),
    isExecutable(path) {
      try {
        accessSync(path, constants.X_OK);
        return statSync(path).isFile();
      } catch {
        return false;
      }
    },
    hostname,
    env: process.env,
  };
}
