import assert from "node:assert/strict";
import { test } from "node:test";
import { command, commandWithoutDashes, interpreted, script, wrapped } from "../../../src/seams/command.ts";

test("puts operands after --, and omits -- without operands", () => {
  assert.deepEqual(
    command(
      "mount",
      [
        ["-t", "nfs"],
        ["-o", "-x"],
      ],
      ["-s:/", "/m"],
    ),
    ["mount", "-t", "nfs", "-o", "-x", "--", "-s:/", "/m"],
  );
  assert.deepEqual(command(["systemctl", "start"], [], ["-.slice"]), ["systemctl", "start", "--", "-.slice"]);
  assert.deepEqual(command("uname", ["-n"]), ["uname", "-n"]);
});

test("refuses operands that begin with a dash for programs without --", () => {
  assert.deepEqual(commandWithoutDashes("fsck", ["-a"], ["/dev/x"]), ["fsck", "-a", "/dev/x"]);
  assert.throws(() => commandWithoutDashes("fsck", ["-a"], ["-y"]), {
    code: "invalid_argument",
    message: '"-y" begins with a dash, which fsck would parse as an option: use another name',
  });
});

test("does not pass parameters of scripts and programs as options of the interpreter", () => {
  assert.deepEqual(script("true", "-x"), ["sh", "-c", "true", "sh", "-x"]);
  assert.deepEqual(interpreted("perl", "1", "-x"), ["perl", "-e", "1", "--", "-x"]);
  assert.deepEqual(interpreted("python3", "1", "-x"), ["python3", "-c", "1", "-x"]);
  assert.deepEqual(wrapped(["nsenter", "--net", "--"], script("true")), [
    "nsenter",
    "--net",
    "--",
    "sh",
    "-c",
    "true",
    "sh",
  ]);
});
