import assert from "node:assert/strict";
import { createPrivateKey, X509Certificate } from "node:crypto";
import { test } from "node:test";
import { createPodCertificates } from "../../../src/certificates/pod-certificates.ts";
import { generateKeyAndProof } from "../../../src/certificates/pod-key.ts";
import { makeSelfSigned } from "../../../src/certificates/self-signed.ts";
import { loadX509 } from "../../../src/certificates/x509.ts";
import { createLogger } from "../../../src/lib/log.ts";
import type { Pod } from "../../../src/objects.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { bodyOf, fakeClient, type WatchFeed, watchFeed } from "../api/fake-client.ts";
import { pod } from "../api/pods.ts";

const minute = 60_000;
const hour = 60 * minute;
const source = { signerName: "s/x", keyType: "ED25519", maxExpirationSeconds: 3600, userAnnotations: { "s/a": "b" } };
const user = (): Pod =>
  pod("p", {
    serviceAccountName: "account",
    volumes: [
      { name: "v", projected: { sources: [{ serviceAccountToken: { path: "t" } }, { podCertificate: source }] } },
    ],
  });

interface Written {
  readonly metadata: object;
  readonly spec: { readonly podUID: string; readonly stubPKCS10Request: string };
}

/** A node with one pod that projects a certificate, and a server that keeps its requests. */
async function start({ enabled = true, isServed = true } = {}) {
  const clock = fakeClock();
  const stop = new AbortController();
  const stored: Written[] = [];
  let feed: WatchFeed | undefined;
  let watches = 0;
  const client = fakeClient((call, signal) => {
    if (!isServed) throw new Error("not served");
    if (call.verb === "list") return { metadata: { resourceVersion: "5" }, items: [] };
    if (call.verb === "watch") {
      watches += 1;
      signal.addEventListener("abort", () => (watches -= 1));
      return (feed = watchFeed(signal));
    }
    const name = `req-${stored.length}`;
    const creationTimestamp = new Date(clock.now()).toISOString();
    const body = call.body as Written;
    const request = { ...body, metadata: { ...body.metadata, name, uid: name, creationTimestamp } };
    stored.push(request);
    return request;
  });
  const events: string[] = [];
  const lines: string[] = [];
  const certificates = createPodCertificates({
    client,
    accounts: { serviceAccount: async (namespace, name) => ({ metadata: { namespace, name, uid: "account-uid" } }) },
    events: { event: (_about, type, reason, message) => void events.push(`${type} ${reason}: ${message}`) },
    node: () => ({ metadata: { name: "node", uid: "node-uid" } }),
    nodeName: "node",
    enabled,
    clock,
    log: createLogger(2, { write: (line) => void lines.push(line) }),
  });
  const running = certificates.run(stop.signal);
  const changed: string[] = [];
  certificates.onChange((uid) => changed.push(uid));
  certificates.register(user());
  const until = async (holds: () => boolean, stepMs = 0) => {
    for (let tries = 0; tries < 2000 && !holds(); tries += 1) {
      await clock.advance(stepMs);
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.ok(holds());
  };
  const t = {
    clock,
    client,
    certificates,
    stored,
    events,
    lines,
    changed,
    until,
    watches: () => watches,
    state: () => certificates.states().map(({ state }) => state),
    read: () => certificates.credentials(user(), "v", 1),
    /** The signer answers a request. */
    async answer(index: number, type: string, status: object = {}) {
      await until(() => stored.length > index);
      const before = changed.length;
      const conditions = [{ type, status: "True", reason: "Because", message: "so it is" }];
      feed?.send(index === 0 ? "ADDED" : "MODIFIED", { ...stored[index], status: { conditions, ...status } });
      await until(() => changed.length > before);
    },
    async issue(index: number, chain: string) {
      const at = (ms: number) => new Date(clock.now() + ms).toISOString();
      await t.answer(index, "Issued", { certificateChain: chain, beginRefreshAt: at(hour / 2), notAfter: at(hour) });
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await clock.advance(hour);
      await running;
    },
  };
  return t;
}

test("requests a certificate with the kubelet's fields, and gives its key and chain to the pod", async () => {
  await using t = await start();
  assert.throws(t.read, { message: "no credentials yet for key={ns p p-uid v 1}" });
  await t.until(() => t.stored.length === 1);
  assert.throws(t.read, { message: "credential bundle is not issued yet" });
  assert.deepEqual(t.state(), ["not_yet_issued"]);
  const create = t.client.calls.findIndex(({ verb }) => verb === "create");
  assert.equal(t.client.calls[create]?.path, "/apis/certificates.k8s.io/v1beta1/namespaces/ns/podcertificaterequests");
  const { metadata, spec } = bodyOf<Written>(t.client, create);
  const owner = { apiVersion: "v1", kind: "Pod", name: "p", uid: "p-uid" };
  assert.deepEqual(metadata, { namespace: "ns", generateName: "req-", ownerReferences: [owner] });
  const { stubPKCS10Request, ...rest } = spec;
  assert.deepEqual(rest, {
    signerName: "s/x",
    podName: "p",
    podUID: "p-uid",
    serviceAccountName: "account",
    serviceAccountUID: "account-uid",
    nodeName: "node",
    nodeUID: "node-uid",
    maxExpirationSeconds: 3600,
    unverifiedUserAnnotations: { "s/a": "b" },
  });
  assert.equal(t.client.calls.find(({ verb }) => verb === "watch")?.query["fieldSelector"], "spec.nodeName=node");

  const { certificate } = await makeSelfSigned("x", [], t.clock.now());
  await t.issue(0, `junk\n${certificate}`);
  const { key, certificateChain } = t.read();
  assert.equal(certificateChain, certificate);
  assert.equal(new X509Certificate(certificateChain).subject.startsWith("CN=x"), true);
  const { Pkcs10CertificateRequest } = await loadX509();
  const proven = await new Pkcs10CertificateRequest(Buffer.from(stubPKCS10Request, "base64")).publicKey.export();
  const { x } = createPrivateKey(key).export({ format: "jwk" });
  assert.equal((await crypto.subtle.exportKey("jwk", proven)).x, x);
  assert.deepEqual([t.state(), t.events, t.changed], [["fresh"], [], ["p-uid"]]);
  assert.doesNotMatch(t.lines.join(""), /PRIVATE/);
});

test("requests a new certificate with a new key when the old one is due, and keeps the old one until then", async () => {
  await using t = await start();
  const { certificate } = await makeSelfSigned("x", [], t.clock.now());
  await t.issue(0, certificate);
  const { key } = t.read();
  await t.clock.advance(hour / 2 - 2 * minute);
  assert.equal(t.stored.length, 1);
  await t.clock.advance(9 * minute);
  await t.until(() => t.stored.length === 2);
  assert.equal(t.read().key, key);
  await t.issue(1, certificate);
  assert.notEqual(t.read().key, key);
  assert.deepEqual([t.state(), t.events], [["fresh"], []]);
});

test("a certificate that is not refreshed is reported once as overdue, and once as expired", async () => {
  await using t = await start();
  await t.issue(0, (await makeSelfSigned("x", [], t.clock.now())).certificate);
  await t.until(() => t.events.length === 1, minute);
  assert.deepEqual(t.state(), ["overdue_for_refresh"]);
  await t.until(() => t.events.length === 2, minute);
  assert.deepEqual(t.state(), ["expired"]);
  await t.clock.advance(5 * minute);
  assert.deepEqual(t.events, [
    "Warning CertificateOverdueForRefresh: PodCertificate refresh overdue",
    "Warning CertificateExpired: PodCertificate expired",
  ]);
  assert.match(t.read().key, /PRIVATE KEY/);
});

test("a denied or failed request is final: the pod gets an event, and no certificate", async () => {
  for (const [type, verb] of [
    ["Denied", "was denied"],
    ["Failed", "failed"],
  ] as const) {
    await using t = await start();
    await t.answer(0, type);
    const [how, why] = [type.toLowerCase(), 'reason="Because"'];
    assert.throws(t.read, {
      message: `PodCertificateRequest was permanently ${how}: ${why} message="so it is"`,
    });
    assert.deepEqual(t.events, [`Warning ${type}: PodCertificateRequest ns/req-0 ${verb}, ${why}, message="so it is"`]);
    await t.clock.advance(hour);
    assert.deepEqual([t.stored.length, t.state()], [1, [how]]);
  }
});

test("a request that is missing after ten to fifteen minutes has been deleted, and is replaced", async () => {
  await using t = await start();
  await t.until(() => t.stored.length === 1);
  await t.clock.advance(9 * minute);
  assert.equal(t.stored.length, 1);
  await t.clock.advance(9 * minute);
  await t.until(() => t.stored.length === 2);
});

test("requests are watched only while a pod needs a certificate", async () => {
  await using t = await start();
  await t.until(() => t.watches() === 1);
  t.certificates.unregister("p-uid");
  assert.equal(t.watches(), 0);
  assert.throws(t.read, { message: /^no credentials yet/ });
});

test("without the API no key is generated, and without the feature gate nothing is asked", async () => {
  await using unserved = await start({ isServed: false });
  await unserved.clock.advance(10 * minute);
  assert.throws(unserved.read, { message: "no credentials yet for key={ns p p-uid v 1}" });
  assert.ok(unserved.client.calls.every(({ verb }) => verb === "list"));
  await using disabled = await start({ enabled: false });
  await disabled.clock.advance(10 * minute);
  assert.throws(disabled.read, { message: "unimplemented" });
  assert.deepEqual(disabled.client.calls, []);
});

test("each key type proves its possession", async () => {
  const { Pkcs10CertificateRequest } = await loadX509();
  const expected = {
    RSA3072: ["rsa", 3072],
    RSA4096: ["rsa", 4096],
    ECDSAP256: ["ec", "prime256v1"],
    ECDSAP384: ["ec", "secp384r1"],
    ECDSAP521: ["ec", "secp521r1"],
    ED25519: ["ed25519", undefined],
  };
  for (const [type, kind] of Object.entries(expected)) {
    const { key, request } = await generateKeyAndProof(type);
    const parsed = new Pkcs10CertificateRequest(Buffer.from(request, "base64"));
    assert.ok(await parsed.verify(), type);
    assert.equal(parsed.subject, "");
    const { asymmetricKeyType, asymmetricKeyDetails } = createPrivateKey(key);
    const size = asymmetricKeyDetails?.modulusLength ?? asymmetricKeyDetails?.namedCurve;
    assert.deepEqual([asymmetricKeyType, size], kind);
  }
  await assert.rejects(generateKeyAndProof("DSA"), { message: 'unknown key type "DSA"' });
});
