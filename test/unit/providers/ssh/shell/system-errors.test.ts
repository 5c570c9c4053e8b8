import assert from "node:assert/strict";
import { test } from "node:test";
import { codeOfMessage, commandError } from "../../../../../providers/ssh/shell/system-errors.ts";

const cases: readonly (readonly [string, string])[] = [
  ["mkdir: cannot create directory 'a/b': No such file or directory", "not_found"],
  ["sh: can't create /no/f: nonexistent directory", "not_found"],
  ["dash: 5: cannot create /no/f: Directory nonexistent", "not_found"],
  ["stat: can't stat 'x': Not a directory", "not_found"],
  ["mkdir: cannot create directory 'x': File exists", "already_exists"],
  ["rmdir: '/tmp': Directory not empty", "failed_precondition"],
  ["dd: failed to open '/tmp': Is a directory", "failed_precondition"],
  ["mv: cannot overwrite directory 'b' with non-directory 'a'", "failed_precondition"],
  ["rmdir: failed to remove 'm': Device or resource busy", "failed_precondition"],
  ["rm: skipping 'm', since it's on a different device", "failed_precondition"],
  ["stat: cannot statx 'a': Too many levels of symbolic links", "failed_precondition"],
  ["stat: can't stat 'a': Symbolic link loop", "failed_precondition"],
  ["/x: Not a regular file", "failed_precondition"],
  ["chmod: changing permissions of 'x': Operation not permitted", "permission_denied"],
  ["cat: x: Permission denied", "permission_denied"],
  ["touch: x: Read-only file system", "permission_denied"],
  ["dd: error writing '/x': No space left on device", "resource_exhausted"],
  ["dd: error writing '/x': Disk quota exceeded", "resource_exhausted"],
  ["dd: error writing '/x': Quota exceeded", "resource_exhausted"],
  ["dd: error writing '/sys/fs/cgroup/x': Invalid argument", "invalid_argument"],
  ["mkdir: x: File name too long", "invalid_argument"],
  ["ConnectionRefusedError: [Errno 111] Connection refused", "unavailable"],
  ["(SSH) Channel open failure: No route to host", "unavailable"],
  ["(SSH) Channel open failure: Connection timed out", "deadline_exceeded"],
  ["sh: 1: stat: not found", "unknown"],
  ["", "unknown"],
];

for (const [said, code] of cases)
  test(`maps ${JSON.stringify(said)} to ${code}`, () => {
    assert.equal(codeOfMessage(`${said}\n`), code);
  });

test("uses the last line with an error message, and ignores file names that contain such messages", () => {
  assert.equal(
    codeOfMessage("mkdir: x: File exists\nchmod: x: Operation not permitted\n0 bytes copied\n"),
    "permission_denied",
  );
  assert.equal(codeOfMessage("mkdir: 'File exists': No such file or directory"), "not_found");
});

test("puts the subject and the target's message into the error with a code", () => {
  assert.equal(
    commandError("/x", "rm: cannot remove '/x': Permission denied\n").message,
    "/x: rm: cannot remove '/x': Permission denied",
  );
  assert.equal(commandError("/x", "").message, "/x: failed without a message");
});
