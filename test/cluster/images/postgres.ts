import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { must } from "../../harness/processes.ts";
import type { LayerRecipe } from "./catalog.ts";

const bin = "/usr/lib/postgresql/15/bin";

/** Packages of the database, and of the libraries that it loads; but for the compiler of queries, which is larger than all others. */
const download = `
packages=$(apt-cache depends --recurse --important postgresql-15 postgresql-client-15 |
  grep -E '^(lib|zlib|postgresql-(client-)?15$)' | grep -vE '^lib(llvm|perl|c6|c-)|-perl$' | sort -u)
apt-get -o APT::Sandbox::User=root download $packages
for deb in *.deb; do dpkg-deb -x "$deb" tree; done`;

/** Debian's PostgreSQL, taken out of its packages: installing it would start a server on the machine. */
export const postgres: LayerRecipe = {
  name: "postgres",
  async fill(root) {
    const scratch = mkdtempSync(join(tmpdir(), "graftlet-postgres-"));
    try {
      await must(["sh", "-ec", `(${download}) || { apt-get update; ${download}; }`], {
        cwd: scratch,
        timeoutMs: 300_000,
      });
      const tree = join(scratch, "tree");
      for (const program of ["postgres", "initdb", "psql", "pg_isready"])
        await root.program(join(tree, bin, program), join(bin, program), tree);
      for (const folder of ["usr/share/postgresql/15", "usr/lib/postgresql/15/lib"])
        cpSync(join(tree, folder), join(root.folder, folder), {
          recursive: true,
          filter: (path) => !/llvmjit|bitcode/.test(path),
        });
    } finally {
      rmSync(scratch, { recursive: true, force: true });
    }
    root.file("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\npostgres:x:70:70::/tmp:/bin/sh\n");
    root.file("/etc/group", "root:x:0:\npostgres:x:70:\n");
  },
};
