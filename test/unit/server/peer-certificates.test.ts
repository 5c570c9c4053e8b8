import assert from "node:assert/strict";
import { test } from "node:test";
import type { TLSSocket } from "node:tls";
import { createPeerCertificates } from "../../../src/server/peer-certificates.ts";
import { fakeClock } from "../../fakes/clock.ts";

const untilNextYear = new Date("2027-01-01T00:00:00Z");

const handshakeMs = 10_000;

/** Connections of a client with a certificate, and the number of times that it was parsed. */
function client(fingerprint256: string, subject: object) {
  const count = { taken: 0 };
  const connection = (authorized: boolean) =>
    ({
      authorized,
      getPeerX509Certificate: () => ({ fingerprint256, validToDate: untilNextYear }),
      getPeerCertificate() {
        count.taken += 1;
        return { subject };
      },
    }) as unknown as TLSSocket;
  return { count, connection };
}

test("parses a certificate once, and applies the TLS result per connection", async () => {
  const clock = fakeClock();
  const peers = createPeerCertificates(() => true, clock, handshakeMs);
  const { count, connection } = client("AA", { CN: "kube-apiserver", O: ["system:masters", "others"] });
  const [first, second, unverified] = [connection(true), connection(true), connection(false)];
  for (const socket of [first, second, unverified]) peers.accept(socket);
  const known = { kind: "known", user: { name: "kube-apiserver", groups: ["system:masters", "others"] } };
  assert.deepEqual([first, second, unverified].map(peers.identify), [known, known, { kind: "refused" }]);
  assert.equal(count.taken, 1);
  await clock.advance(untilNextYear.getTime() - clock.now());
  assert.deepEqual(peers.identify(second), { kind: "refused" });
});

test("a different certificate means a different user; a certificate without a name has no user", () => {
  const peers = createPeerCertificates(() => true, fakeClock(), handshakeMs);
  const sockets = [client("AA", { CN: "a" }), client("BB", { CN: "b" }), client("CC", { O: "c" })].map((one) =>
    one.connection(true),
  );
  for (const socket of sockets) peers.accept(socket);
  assert.deepEqual(sockets.map(peers.identify), [
    { kind: "known", user: { name: "a", groups: [] } },
    { kind: "known", user: { name: "b", groups: [] } },
    { kind: "none" },
  ]);
});

test("marks connections stale after a CA change, including those whose handshake began before it", async () => {
  const clock = fakeClock();
  const peers = createPeerCertificates(() => true, clock, handshakeMs);
  const { connection } = client("AA", { CN: "a" });
  const [before, during, after] = [connection(true), connection(false), connection(true)];
  peers.accept(before);
  assert.equal(peers.isStale(before), false);
  peers.renew();
  await clock.advance(handshakeMs - 1);
  peers.accept(during);
  await clock.advance(1);
  peers.accept(after);
  assert.deepEqual([before, during, after].map(peers.isStale), [true, true, false]);
});
