import { readdirSync, readFileSync } from "node:fs";
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
    hostname,
    env: process.env,
  };
}
