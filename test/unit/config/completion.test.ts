import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import { filesIo, sentenceOf } from "./files.ts";

function printed(...argv: readonly string[]): string {
  const parsed = parseCommandLine(argv, filesIo({}));
  assert.ok(parsed.kind === "help");
  return parsed.text;
}

describe("shell completion", () => {
  let folder: string;
  before(() => void (folder = mkdtempSync(join(tmpdir(), "graftlet-completion-"))));
  after(() => rmSync(folder, { recursive: true }));

  /** Bash's completions for the last of these words. */
  const proposedByBash = (...words: readonly string[]) => {
    const file = join(folder, "bash");
    writeFileSync(file, printed("completion", "bash"));
    const script = `source ${file}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _graftlet; printf '%s\n' "\${COMPREPLY[@]}"`;
    return execFileSync("bash", ["-c", script, "bash", ...words], { encoding: "utf8" })
      .trim()
      .split("\n");
  };

  test("bash: completes commands, node flags and command flags", () => {
    assert.deepEqual(proposedByBash("graftlet", "do"), ["doctor"]);
    assert.deepEqual(proposedByBash("graftlet", "--provider"), ["--provider", "--provider-config", "--provider-id"]);
    assert.deepEqual(proposedByBash("graftlet", "--vers"), ["--version"]);
    assert.deepEqual(proposedByBash("graftlet", "leave", "--deploy"), ["--deployment"]);
    assert.deepEqual(proposedByBash("graftlet", "doctor", "--deploy"), [""]);
    assert.deepEqual(proposedByBash("graftlet", "completion", "z"), ["zsh"]);
    assert.deepEqual(proposedByBash("graftlet", "help", "rem"), ["remove"]);
  });

  test("fish: completes the same commands and flags as bash", () => {
    const file = join(folder, "graftlet.fish");
    writeFileSync(file, printed("completion", "fish"));
    const proposed = (line: string) =>
      execFileSync("fish", ["--no-config", "-c", `source ${file}; complete -C ${JSON.stringify(line)}`], {
        encoding: "utf8",
        env: { ...process.env, HOME: folder },
      })
        .trim()
        .split("\n")
        .map((each) => each.split("\t")[0]);
    assert.deepEqual(proposed("graftlet do"), ["doctor"]);
    assert.deepEqual(
      new Set(proposed("graftlet --provider")),
      new Set(["--provider", "--provider-config", "--provider-id"]),
    );
    assert.deepEqual(proposed("graftlet leave --deploy"), ["--deployment"]);
  });

  test("prints the help of each command, and refuses unknown ones", () => {
    for (const command of ["leave", "enrol", "remove", "doctor", "status"])
      assert.equal(printed("help", command), printed(command, "--help"));
    assert.equal(printed("help"), printed("--help"));
    const refused = (...argv: readonly string[]) => sentenceOf(() => printed(...argv));
    assert.match(refused("help", "me"), /help is "me": use one of leave, enrol, remove, doctor, status, or none/);
    assert.match(refused("completion", "csh"), /completion is "csh": use one of bash, zsh, fish/);
    assert.match(refused("completion"), /completion .*use one of bash, zsh, fish/);
  });
});
