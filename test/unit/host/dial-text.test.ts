import assert from "node:assert/strict";
import { test } from "node:test";
import { dialFailure, unixDialFailure } from "../../../src/host/dial-text.ts";
import { CodedError } from "../../../src/lib/errors.ts";

/** A failed dial as hosts report it: the system call's error is the cause. */
function failedDial(errno: string): CodedError {
  const cause = Object.assign(new Error(`connect ${errno} 10.0.0.9:80`), { code: errno, syscall: "connect" });
  return new CodedError("unavailable", `10.0.0.9:80: ${cause.message}`, { cause });
}

for (const [errno, text] of [
  ["ECONNREFUSED", "connect: connection refused"],
  ["ECONNRESET", "connect: connection reset by peer"],
  ["EHOSTUNREACH", "connect: no route to host"],
  ["ENETUNREACH", "connect: network is unreachable"],
] as const)
  test(`reports a dial that fails with ${errno} in Go's words`, () => {
    assert.equal(dialFailure(failedDial(errno), "10.0.0.9", 80), `dial tcp 10.0.0.9:80: ${text}`);
    assert.equal(unixDialFailure(failedDial(errno), "/run/x.sock"), `dial unix /run/x.sock: ${text}`);
  });
