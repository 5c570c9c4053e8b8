import assert from "node:assert/strict";
import { test } from "node:test";
import { createTokenSigners } from "../../../src/api/token-signers.ts";
import { fakeClock } from "../../fakes/clock.ts";

const now = Date.UTC(2026, 0, 1) / 1000;
const jwt = (head: string, claims: unknown, signature = "signature") =>
  `${head}.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.${signature}`;
const inForce = { iss: "https://cluster", exp: now + 60 };

test("classifies a token by whether it has a valid token's header, is an unexpired JWT, or neither", () => {
  const signers = createTokenSigners(fakeClock());
  assert.equal(signers.kindOf(jwt("head", inForce)), "jwt");
  signers.recordValid(jwt("head", inForce));
  signers.recordValid("opaque");
  assert.equal(signers.kindOf(jwt("head", { ...inForce, sub: "other" }, "made-up")), "signed");
  const others = [
    "opaque",
    "head.payload.signature",
    `${jwt("head", inForce)}.more`,
    jwt("head", { ...inForce, exp: now - 1 }),
    jwt("head", { exp: now + 60 }),
    jwt("head", null),
    jwt("head", { ...inForce, long: "x".repeat(9000) }),
    jwt("h".repeat(2000), inForce),
  ];
  for (const token of others) assert.equal(signers.kindOf(token), "other", token.slice(0, 80));
});

test("remembers the newest signing keys", () => {
  const signers = createTokenSigners(fakeClock());
  for (let index = 0; index < 20; index++) signers.recordValid(jwt(`head-${index}`, inForce));
  assert.deepEqual(
    ["head-3", "head-4", "head-19"].map((head) => signers.kindOf(jwt(head, inForce))),
    ["jwt", "signed", "signed"],
  );
});
