import { cpSync } from "node:fs";
import { join } from "node:path";
import type { LayerRecipe } from "./catalog.ts";
import { unpackPackages } from "./debian.ts";

const bin = "/usr/lib/postgresql/15/bin";

/** Debian's PostgreSQL, but for its compiler of queries. */
export const postgres: LayerRecipe = {
  name: "postgres",
  async fill(root) {
    using packages = await unpackPackages(["postgresql-15", "postgresql-client-15"]);
    const tree = packages.folder;
    for (const program of ["postgres", "initdb", "psql", "pg_isready"])
      await root.program(join(tree, bin, program), join(bin, program), tree);
    for (const folder of ["usr/share/postgresql/15", "usr/lib/postgresql/15/lib"])
      cpSync(join(tree, folder), join(root.folder, folder), {
        recursive: true,
        filter: (path) => !/llvmjit|bitcode/.test(path),
      });
    root.file("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\npostgres:x:70:70::/tmp:/bin/sh\n");
    root.file("/etc/group", "root:x:0:\npostgres:x:70:\n");
  },
};
