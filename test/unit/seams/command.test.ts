import assert from "node:assert/strict";
import { test } from "node:test";
import { command, commandWithoutDashes, interpreted, script, wrapped } from "../../../src/seams/command.ts";

test("operands follow --, whatever they begin with; without operands there is none", () => {
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

test("a program without -- is given no operand that begins with a dash", () => {
  assert.deepEqual(commandWithoutDashes("fsck", ["-a"], ["/dev/x"]), ["fsck", "-a", "/dev/x"]);
  assert.throws(() => commandWithoutDashes("fsck", ["-a"], ["-y"]), {
    code: "invalid_argument",
    message: '"-y" begins with a dash, which fsck takes for an option: use another name',
  });
});

test("parameters of scripts and programs are no options of their interpreters", () => {
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
