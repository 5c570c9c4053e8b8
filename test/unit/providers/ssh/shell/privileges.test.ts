import assert from "node:assert/strict";
import { test } from "node:test";
import {
  missingPrivileges,
  parsePrivileges,
  parseServer,
  shellCommand,
} from "../../../../../providers/ssh/shell/privileges.ts";

const config = { user: "me", sudo: "auto" } as const;
const told = (...lines: readonly string[]) => `${lines.join("\n")}\n`;

test("reports no missing privileges for root", () => {
  const found = parsePrivileges(told("root", "root", "/usr/lib/sftp-server", "perl python3 ", "", "proc"), config);
  assert.deepEqual(found, {
    runAs: "root",
    groups: ["root"],
    sftpServer: "/usr/lib/sftp-server",
    relays: ["python3", "perl"],
    missing: [],
  });
  assert.equal(shellCommand(found), "exec /bin/sh");
});

test("reports a missing relay program for a user with sudo", () => {
  const found = parsePrivileges(told("sudo", "me docker", "", "", "", "proc"), config);
  assert.equal(shellCommand(found), "exec sudo -n /bin/sh");
  assert.deepEqual(found.groups, ["me", "docker"]);
  assert.equal(found.missing.length, 1);
  assert.match(found.missing[0] ?? "", /none of python3, perl, socat, nc/);
});

test("reports missing root privileges, programs and /proc", () => {
  const { missing, runAs } = parsePrivileges(told("user", "me", "", "nc ", "stat awk ", ""), config);
  assert.equal(runAs, "user");
  assert.match(missing[0] ?? "", /me ALL=\(ALL\) NOPASSWD: ALL/);
  assert.match(missing[1] ?? "", /no stat program/);
  assert.match(missing[2] ?? "", /no awk program/);
  assert.match(missing[3] ?? "", /does not show \/proc/);
  const never = parsePrivileges(told("user", "me", "", "", "", "proc"), { user: "me", sudo: "never" });
  assert.match(never.missing[0] ?? "", /set sudo: auto, or log in as root/);
});

test("reports a sudo that asks for a password, with the line for sudoers", () => {
  const found = parsePrivileges(told("user password", "ubuntu sudo", "", "perl ", "", "proc"), {
    ...config,
    user: "ubuntu",
  });
  assert.deepEqual([found.runAs, found.sudoNeedsPassword], ["user", true]);
  assert.match(
    found.missing[0] ?? "",
    /^User ubuntu .* its sudo asks for a password, .*`ubuntu ALL=\(ALL\) NOPASSWD: ALL`/,
  );
  assert.equal(missingPrivileges(found).sudoNeedsPassword, true);
  const plain = parsePrivileges(told("user", "me", "", "", "", "proc"), config);
  assert.equal(missingPrivileges(plain).sudoNeedsPassword, undefined);
});

test("reports a sudo that requires a terminal, and a login in a chroot", () => {
  const found = parsePrivileges(told("user terminal", "me", "", "perl ", "", "proc"), config);
  assert.match(found.missing[0] ?? "", /its sudo asks for a terminal, .*`Defaults:me !requiretty`/);
  assert.equal(found.sudoNeedsPassword, undefined);
  const root = (last: string) => parsePrivileges(told("root", "root", "", "", "", "proc", "", "", "", last), config);
  assert.deepEqual(
    ["chroot", ""].map((last) => root(last).inChroot),
    [true, undefined],
  );
});

test("only a non-root login makes pod features unsupported; every missing privilege is reported", () => {
  const sudo = parsePrivileges(told("sudo", "me", "", "", "awk ", ""), config);
  assert.deepEqual(missingPrivileges(sudo), { messages: sudo.missing, unsupported: {} });
  assert.equal(sudo.missing.length, 3);
  const user = parsePrivileges(told("user", "me docker", "", "", "", "proc"), config);
  assert.deepEqual(Object.keys(missingPrivileges(user).unsupported), ["fileOwner", "mount"]);
});

test("starts shells in their own session if the SSH server gives them no process group", () => {
  const found = parsePrivileges(told("sudo", "me", "", "nc ", "", "proc", "shared"), config);
  assert.equal(shellCommand(found), "exec setsid sudo -n /bin/sh");
  assert.deepEqual(found.missing, []);
  const lacking = parsePrivileges(told("root", "root", "", "", "setsid ", "proc", "shared"), config);
  assert.equal(shellCommand(lacking), "exec /bin/sh");
  assert.match(lacking.missing[0] ?? "", /no setsid program, so stopping a command drops the connection/);
});

test("reports that the target enforces SELinux, but not that it only warns, or has none", () => {
  const found = (enforce: string) => parsePrivileges(told("root", "root", "", "", "", "proc", "", enforce), config);
  assert.deepEqual(
    ["1", "0", ""].map((enforce) => found(enforce).enforcesSelinux),
    [true, undefined, undefined],
  );
});

test("rejects an invalid answer", () => {
  assert.throws(() => parsePrivileges("", config), { code: "failed_precondition" });
});

test("reports which process serves the connection, unless the target's answer is no process", () => {
  const answer = (line: string) => parseServer(told("root", "root", "", "", "", "proc", "", "", line));
  const server = "812 440213 6f1a7f0c-9a57-4b5e-8b0d-0f6a3c1d2e4f";
  assert.equal(answer(server), server);
  for (const other of ["", "812", `${server} x`, `-1${server}`, `${server}\u0000`, server.replace("812", "$(id)")])
    assert.equal(answer(other), undefined, other);
  assert.equal(parseServer(told("root", "root")), undefined);
});
