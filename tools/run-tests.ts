import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** More files than these do not fail by chance. */
const mostAgain = 3;

/** Node's test runner waits for ever on a file that leaves something open: after so many minutes it is interrupted, and then names
 *  the file. */
const [minutes = "", ...args] = process.argv.slice(2);
if (!/^[1-9]\d*$/.test(minutes) || args.length === 0)
  throw new Error("write: node tools/run-tests.ts MINUTES [--test-…] FILES");

/** Runs them, with the runner's own report.
 *  @returns the files that failed; undefined where what failed is not a file's tests. */
function run(given: readonly string[]): readonly string[] | undefined {
  const folder = mkdtempSync(join(tmpdir(), "run-tests-"));
  try {
    const failed = join(folder, "failed");
    const reporters = [
      ["--test-reporter=spec", "--test-reporter-destination=stdout"],
      [`--test-reporter=${join(import.meta.dirname, "failed-files.ts")}`, `--test-reporter-destination=${failed}`],
    ].flat();
    const limits = ["--foreground", "--signal=INT", "--kill-after=60", `${minutes}m`];
    const { status } = spawnSync("timeout", [...limits, process.execPath, "--test", ...reporters, ...given], {
      stdio: "inherit",
    });
    if (status === 0) return [];
    const files = existsSync(failed) ? readFileSync(failed, "utf8").split("\n").filter(existsSync) : [];
    return status === 1 && files.length > 0 ? files : undefined;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Tests on a real cluster meet what is nobody's fault, such as a machine that stands still for a second; what fails twice, the
 *  second time with the machine to itself, is a fault. What failed once is named, for it may be one too. */
function runTwice(): boolean {
  const failed = run(args);
  if (failed === undefined || failed.length === 0) return failed !== undefined;
  if (failed.length > mostAgain) return false;
  const names = failed.join(" ");
  console.log(`==> once more, by themselves: ${names}`);
  const options = args.filter((arg) => arg.startsWith("--") && !arg.startsWith("--test-concurrency="));
  const again = run([...options, "--test-concurrency=1", ...failed]);
  if (again?.length !== 0) return false;
  console.log(`==> failed once and passed the second time, look into it: ${names}`);
  return true;
}

process.exitCode = runTwice() ? 0 : 1;
