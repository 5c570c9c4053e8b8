import { X509Certificate, webcrypto } from "node:crypto";
import "reflect-metadata";
import * as x509 from "@peculiar/x509";
import type { CertificateSigningRequest } from "../../../src/objects.ts";
import { type Call, type FakeClient, fakeClient, watchFeed, type WatchFeed } from "../api/fake-client.ts";

const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

/** The API server's certificates API with a signer that signs approved requests. */
export interface Signer {
  readonly client: FakeClient;
  /** Requests by name, as created. */
  readonly requests: Map<string, CertificateSigningRequest>;
  approve(name: string, notBefore: number, lifeMs: number): Promise<void>;
  deny(name: string): void;
  remove(name: string): void;
}

/** @param refuse the error that creation fails with. */
export async function fakeSigner(refuse?: () => Error | undefined): Promise<Signer> {
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
  const requests = new Map<string, CertificateSigningRequest>();
  const feeds = new Set<WatchFeed>();
  const client = fakeClient((call: Call, signal) => {
    if (call.verb === "create") {
      const refused = refuse?.();
      if (refused) throw refused;
      const body = call.body as CertificateSigningRequest;
      requests.set(body.metadata.name, { ...body, status: {} });
      return body;
    }
    const name = String(call.query["fieldSelector"]).replace("metadata.name=", "");
    const found = requests.get(name);
    if (call.verb === "list") return { metadata: { resourceVersion: "1" }, items: found ? [found] : [] };
    const feed = watchFeed(signal);
    feeds.add(feed);
    // Changes between the list and the watch are part of the watch.
    if (found) feed.send("MODIFIED", found);
    return feed;
  });
  const tell = (type: "MODIFIED" | "DELETED", request: CertificateSigningRequest) => {
    for (const feed of feeds) feed.send(type, request);
  };
  const change = (name: string, status: CertificateSigningRequest["status"]) => {
    const known = requests.get(name);
    if (!known) throw new Error(`there is no request ${name}`);
    const request = { ...known, status };
    requests.set(name, request);
    tell("MODIFIED", request);
  };
  return {
    client,
    requests,
    async approve(name, notBefore, lifeMs) {
      const pem = Buffer.from(requests.get(name)?.spec.request ?? "", "base64").toString();
      const wanted = new x509.Pkcs10CertificateRequest(pem);
      const certificate = await x509.X509CertificateGenerator.create({
        subject: wanted.subject,
        issuer: "CN=signer",
        notBefore: new Date(notBefore),
        notAfter: new Date(notBefore + lifeMs),
        publicKey: await wanted.publicKey.export(),
        signingKey: keys.privateKey,
        signingAlgorithm: algorithm,
        extensions: wanted.extensions,
      });
      change(name, { certificate: Buffer.from(certificate.toString("pem")).toString("base64") });
    },
    deny: (name) =>
      change(name, {
        conditions: [{ type: "Denied", status: "True", reason: "Stranger", message: "not one of ours" }],
      }),
    remove(name) {
      const known = requests.get(name);
      requests.delete(name);
      if (known) tell("DELETED", known);
    },
  };
}

/** Output of openssl for a certificate. */
export function read(pem: string): X509Certificate {
  return new X509Certificate(pem);
}
