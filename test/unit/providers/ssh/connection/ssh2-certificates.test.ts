import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import ssh2, { type Client, type Connection, type ParsedKey } from "ssh2";
import { parseCertificate } from "../../../../../providers/ssh/connection/certificate.ts";
import { offerHostCertificates, useCertificate } from "../../../../../providers/ssh/connection/ssh2-certificates.ts";
import { type SshKey, certificateOf, sshKey } from "../../../../harness/ssh-keys.ts";

const algorithm = "rsa-sha2-512";
const certified = "rsa-sha2-512-cert-v01@openssh.com";

test("the installed ssh2 has the version whose internals are patched", () => {
  assert.match(readFileSync("package.json", "utf8"), /"ssh2": "1\.17\.0"/);
  assert.match(readFileSync("node_modules/ssh2/package.json", "utf8"), /"version": "1\.17\.0"/);
});

test("rejects a client with different internals in one sentence", () => {
  const blob = certificateOf(sshKey("ed25519"), sshKey("ed25519"));
  const certificate = { ...parseCertificate(blob), blob };
  for (const protocol of [undefined, {}, { _kex: undefined, _offer: { lists: {} } }]) {
    const client = { _protocol: protocol } as unknown as Client;
    for (const use of [() => offerHostCertificates(client, [certified]), () => useCertificate(client, certificate)])
      assert.throws(use, {
        reason: "CertificateInvalid",
        message: /^this graftlet's version of ssh2 does not support certificates/,
      });
  }
});

const key = sshKey("rsa");
const host = certificateOf(key, sshKey("ed25519"));

const impostors: readonly (readonly [what: string, shown: Shown, refusal: RegExp | undefined])[] = [
  ["that has the certified key", { blob: host, signer: key, named: algorithm }, undefined],
  ["with another key", { blob: host, signer: sshKey("rsa"), named: algorithm }, /signature verification failed/],
  ["with a signature by another name", { blob: host, signer: key, named: "rsa-sha2-256" }, /Wrong signature type/],
  ["with a signature by SHA-1's name", { blob: host, signer: key, named: "ssh-rsa" }, /Wrong signature type/],
  ["with a signature by the certificate's name", { blob: host, signer: key, named: certified }, /Wrong signature type/],
  [
    "that presents a plain key",
    { blob: key.wire, signer: key, named: algorithm },
    /Host key does not match negotiated type/,
  ],
];

for (const [what, shown, refusal] of impostors)
  test(`${refusal ? "rejects" : "accepts"} a host ${what}, even if the host key verifier accepts everything`, {
    timeout: 10_000,
  }, async () => {
    await using server = await serverOf(shown);
    const client = new ssh2.Client();
    const seen: Buffer[] = [];
    client.connect({ username: "me", port: server.port, hostVerifier: (blob: Buffer) => seen.push(blob) > 0 });
    offerHostCertificates(client, [certified]);
    const ready = once(client, "ready");
    await (refusal ? assert.rejects(ready, refusal) : ready);
    client.destroy();
    if (!refusal) assert.deepEqual(seen, [host]);
  });

/** The host key or certificate that a server presents. */
interface Shown {
  readonly blob: Buffer;
  readonly signer: SshKey;
  /** The signature algorithm that it claims. */
  readonly named: string;
}

/** An sshd on loopback that accepts every login. */
async function serverOf(shown: Shown): Promise<AsyncDisposable & { readonly port: number }> {
  const server = new ssh2.Server({ hostKeys: [pemOf(key)] }, (connection) => {
    impersonate(connection, shown);
    connection.on("authentication", (asked) => asked.accept());
    connection.on("error", () => connection.end());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      server.close();
      await once(server, "close");
    },
  };
}

function pemOf({ privateKey }: SshKey): string {
  return privateKey.export({ type: "pkcs1", format: "pem" });
}

interface Inside {
  readonly _hostKeys: Record<string, object>;
  readonly _kex: { readonly negotiated: { serverHostKey: string } };
}

/** Makes ssh2's server present a certificate. ssh2's server does not support certificates either, and labels its signature with the negotiated algorithm. */
function impersonate(connection: Connection, { blob, signer, named }: Shown): void {
  offerHostCertificates(connection as unknown as Client, [certified]);
  const { _protocol: protocol } = connection as unknown as { _protocol: Inside };
  // Only the server's offer has to be changed.
  Object.defineProperty(protocol, "_kex", { value: undefined, writable: true });
  const signingKey = ssh2.utils.parseKey(pemOf(signer)) as ParsedKey;
  protocol._hostKeys[certified] = {
    type: "ssh-rsa",
    getPublicSSH: () => blob,
    sign(data: Buffer) {
      protocol._kex.negotiated.serverHostKey = named;
      return signingKey.sign(data, "sha512");
    },
  };
}
