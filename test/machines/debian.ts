import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, symlinkSync, utimesSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { must, run } from "../harness/processes.ts";
import { turn } from "../harness/turn.ts";

/** Ingredients of a Debian. */
export interface DebianRecipe {
  readonly suite: string;
  readonly packages: readonly string[];
  /** Paths of its packages that are left out. */
  readonly without: readonly string[];
  /** Shell commands that run in the new root once its essential packages are there, with its path as `$1`. */
  readonly before?: readonly string[];
}

/** Paths that nobody reads on a machine of minutes. */
export const unread = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"] as const;

/** A product that is made once for each recipe. */
export interface Cached {
  /** Beginning of its folder's name; products of one kind replace each other. */
  readonly kind: string;
  /** Everything that the product depends on: a change of it makes another. */
  readonly recipe: unknown;
  /** Sentence for the user who has to wait. */
  readonly waiting: string;
  readonly say: (line: string) => void;
  /** Makes it in a folder that is not there yet. */
  make(folder: string): Promise<void>;
}

/** Runs of another recipe, in another checkout, may stand on the one before for some time. */
const keptDays = 7;

/** A folder below the cache of machines with the product of this recipe, made where it is not there: of all processes that ask for
 *  one kind, one makes it. Those of the kind that nobody has asked for in a week are removed. */
export async function cached({ kind, recipe, waiting, say, make }: Cached): Promise<string> {
  const folder = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "graftlet", "machines");
  const key = createHash("sha256").update(JSON.stringify(recipe)).digest("hex").slice(0, 16);
  const product = join(folder, `${kind}-${key}`);
  if (!existsSync(product)) {
    mkdirSync(folder, { recursive: true });
    await using _ = await turn(join(folder, `.${kind}`));
    if (!existsSync(product)) {
      say(waiting);
      const partial = join(folder, `${kind}.partial`);
      rmSync(partial, { recursive: true, force: true });
      await make(partial);
      for (const name of readdirSync(folder).filter((name) => new RegExp(`^${kind}-[0-9a-f]{16}$`).test(name)))
        forget(join(folder, name));
      renameSync(partial, product);
    }
  }
  utimesSync(product, new Date(), new Date());
  return product;
}

function forget(product: string): void {
  const { mtimeMs } = statSync(product);
  if (Date.now() - mtimeMs > keptDays * 86_400_000) rmSync(product, { recursive: true });
}

/** Installs a Debian into a folder that is not there yet. Throws with the end of what its maker said when that fails. */
export async function installDebian({ suite, packages, without, before = [] }: DebianRecipe, folder: string) {
  const argv = ["mmdebstrap", "--variant=minbase", "--mode=root", `--include=${packages.join(",")}`];
  const excluded = without.map((path) => `--dpkgopt=path-exclude=${path}`);
  const hooks = before.map((command) => `--essential-hook=${command}`);
  // What is never released has no promise of how long its list of packages holds.
  const unreleased = suite === "unstable" ? ['--aptopt=Acquire::Check-Valid-Until "false"'] : [];
  await must([...argv, ...excluded, ...unreleased, ...hooks, suite, folder, ...(await sourcesOf(suite))], {
    timeoutMs: 900_000,
  });
}

/** The folder of libraries for programs of another architecture, which nothing in it runs: unpacked once per recipe, in seconds. */
export function foreignLibraries(architecture: string, packages: readonly string[], say: (line: string) => void) {
  return cached({
    kind: `libraries-${architecture}`,
    recipe: packages,
    waiting: `unpacking libraries for ${architecture}`,
    say,
    async make(folder) {
      const argv = [`--architectures=${architecture}`, "--variant=extract", `--include=${packages.join(",")}`];
      await must(["mmdebstrap", ...argv, suiteOfLibraries, folder, ...(await sourcesOf(suiteOfLibraries))], {
        timeoutMs: 300_000,
      });
    },
  });
}
const suiteOfLibraries = "bookworm";

/** Sources of a suite as this machine's own apt has them: that is where packages come from here. None where it has none of them,
 *  which means Debian's own. */
async function sourcesOf(suite: string): Promise<string[]> {
  const format = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)";
  const { stdout } = await run([
    "apt-get",
    "indextargets",
    "--format",
    format,
    "Created-By: Packages",
    "Origin: Debian",
  ]);
  const lines = stdout.split("\n").filter((line) => new RegExp(` ${suite}(-updates|-security)? main$`).test(line));
  if (lines.length > 0) return [...new Set(lines)];
  // Another release is where this machine's own is.
  const own = /^deb (\S+) [a-z]+ main$/m.exec(stdout)?.[1];
  return own === undefined ? [] : [`deb ${own} ${suite} main`];
}

/** Keeps systemd from starting units, whoever asks for them. @param root the folder that is / there. */
export function maskUnits(root: string, units: readonly string[]): void {
  for (const unit of units) {
    const mask = join(root, "etc/systemd/system", unit);
    rmSync(mask, { force: true });
    symlinkSync("/dev/null", mask);
  }
}
