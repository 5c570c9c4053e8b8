import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { must } from "../../harness/processes.ts";

/** Unpacked packages: their files in one folder, which goes with the value. */
export interface UnpackedPackages extends Disposable {
  readonly folder: string;
}

/** Downloads the machine's Debian packages of these names, and of the libraries that they load, but for a compiler of queries that is larger
 *  than all others; and unpacks them: to install one would start its server on the machine. */
export async function unpackPackages(names: readonly string[]): Promise<UnpackedPackages> {
  const scratch = mkdtempSync(join(tmpdir(), "graftlet-packages-"));
  const wanted = names.join(" ");
  const download = `
libraries=$(apt-cache depends --recurse --important ${wanted} |
  grep -E '^(lib|zlib)' | grep -vE '^lib(llvm|perl|python|c6|c-)|-perl$' | sort -u)
apt-get -o APT::Sandbox::User=root download ${wanted} $libraries || exit
for deb in *.deb; do dpkg-deb -x "$deb" tree; done`;
  try {
    await must(["sh", "-ec", `(${download}) || { apt-get update; ${download}; }`], {
      cwd: scratch,
      timeoutMs: 300_000,
    });
  } catch (error) {
    rmSync(scratch, { recursive: true, force: true });
    throw error;
  }
  return {
    folder: join(scratch, "tree"),
    [Symbol.dispose]: () => rmSync(scratch, { recursive: true, force: true }),
  };
}
