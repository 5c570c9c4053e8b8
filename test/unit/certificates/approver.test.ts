import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ApiError } from "../../../src/api/api-error.ts";
import { createApprover, rejectionReason } from "../../../src/certificates/approver.ts";
import { newKey, signingRequest } from "../../../src/certificates/signing-request.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { CertificateSigningRequest } from "../../../src/objects.ts";
import { fakeClock } from "../../fakes/clock.ts";
import {
  alternativeNames,
  commonName,
  organization,
  organizationalUnit,
  pemOf,
  type RequestVariant,
  requestDer,
} from "../../harness/request-variants.ts";
import { bodyOf, type Call, fakeClient, silent } from "../api/fake-client.ts";

const own = { nodeName: "edge-1", signer: "kubernetes.io/kubelet-serving", addresses: ["10.0.0.9", "fd00:0:0::9"] };
const user = "system:node:edge-1";
const usages = ["digital signature", "server auth"];

/** A request as the API server has it. */
function request(pem: string, spec: Partial<CertificateSigningRequest["spec"]> = {}): CertificateSigningRequest {
  return {
    apiVersion: "certificates.k8s.io/v1",
    kind: "CertificateSigningRequest",
    metadata: { name: "node-csr-1", uid: "1", resourceVersion: "7" },
    spec: {
      signerName: "kubernetes.io/kubelet-serving",
      username: user,
      groups: ["system:nodes", "system:authenticated"],
      usages,
      request: Buffer.from(pem).toString("base64"),
      ...spec,
    },
    status: {},
  };
}

const asked = async (...names: readonly string[]) =>
  signingRequest({ commonName: user, organization: "system:nodes", names }, await newKey());
const right = await asked("edge-1", "10.0.0.9", "fd00::9");

const nodes = [{ oid: organization, value: "system:nodes" }];
const named = (value: string) => [{ oid: commonName, value }];
const dns = (name: string) => [0x82, name] as const;
const names = { oid: alternativeNames, names: [dns("edge-1"), [0x87, [10, 0, 0, 9]] as const] };
const by = (variant: RequestVariant, subject = [nodes, named(user)]) => pemOf(requestDer(subject, variant));

describe("validation of serving certificate requests", () => {
  const why = (pem: string, spec?: Partial<CertificateSigningRequest["spec"]>) =>
    rejectionReason(request(pem, spec), own);

  test("accepts only requests for the configured signer", () => {
    const signer = "example.com/serving";
    const of = (signerName: string) => rejectionReason(request(right, { signerName }), { ...own, signer });
    assert.equal(of(signer), undefined);
    assert.equal(of(own.signer), "it is for the signer kubernetes.io/kubelet-serving, not example.com/serving");
  });

  test("accepts the node's request for its own name and addresses, with any key", async () => {
    assert.equal(why(right), undefined);
    assert.equal(why(await asked("edge-1")), undefined);
    assert.equal(why(await asked("10.0.0.9")), undefined);
    assert.equal(why(right, { usages: ["server auth", "key encipherment", "digital signature"] }), undefined);
    assert.equal(why(by({ extensions: [[names]] })), undefined);
    assert.equal(why(by({ extensions: [[names]], key: "rsa" })), undefined);
  });

  test("rejects a request for another signer", () => {
    const signerName = "kubernetes.io/kube-apiserver-client-kubelet";
    assert.match(
      why(right, { signerName }) ?? "",
      /^it is for the signer kubernetes\.io\/kube-apiserver-client-kubelet, not/,
    );
  });

  test("rejects any other requestor: another node, the service account, an anonymous user, or a user outside the group", () => {
    for (const username of ["system:node:edge-2", "system:serviceaccount:edge:edge-graftlet", "edge-1", undefined])
      assert.match(
        rejectionReason({ ...request(right), spec: { ...request(right).spec, username } }, own) ?? "",
        /^it was requested by .*, not by system:node:edge-1$/,
      );
    assert.match(why(right, { groups: ["system:authenticated"] }) ?? "", /is not in the group system:nodes$/);
  });

  test("rejects a request with key usages other than those of a serving certificate", () => {
    for (const other of [
      [],
      ["server auth"],
      ["digital signature"],
      ["digital signature", "client auth"],
      [...usages, "client auth"],
      [...usages, "cert sign"],
      [...usages, "server auth"],
    ])
      assert.match(
        why(right, { usages: other }) ?? "",
        /^its usages are not those of a serving certificate/,
        other.join(),
      );
  });

  test("rejects a request whose subject is not the node", () => {
    const unit = [{ oid: organizationalUnit, value: "x" }];
    const subjects = {
      "another node": [nodes, named("system:node:edge-2")],
      "no node": [nodes, named("edge-1")],
      "another group": [[{ oid: organization, value: "system:masters" }], named(user)],
      "one more": [nodes, named(user), unit],
      "two in one": [[...nodes, { oid: organization, value: "system:masters" }], named(user)],
      "another order": [named(user), nodes],
      "no group": [named(user)],
      nothing: [],
    };
    for (const [what, subject] of Object.entries(subjects))
      assert.match(
        why(by({ extensions: [[names]] }, subject)) ?? "",
        /^it is for O=|^the request has (unexpected subject attributes|unexpected elements)/,
        what,
      );
  });

  test("rejects a request with foreign names or addresses, or with none at all", async () => {
    for (const more of ["kubernetes.default.svc", "edge-2", "*.edge-1", "EDGE-1", "10.96.0.1", "fd00::1", "10.0.0.90"])
      assert.match(
        why(await asked("edge-1", "10.0.0.9", more)) ?? "",
        /^it contains \[".*"\], but only edge-1, 10\.0\.0\.9, fd00::9 belong to the node$/,
        more,
      );
    assert.match(why(by({})) ?? "", /contains neither the node's name nor an address/);
    assert.match(
      why(by({ extensions: [[{ ...names, names: [] }]] })) ?? "",
      /contains neither the node's name nor an address/,
    );
  });

  test("rejects a request with extensions other than subject alternative names", () => {
    const uri = [0x86, "https://edge-1"] as const;
    const mail = [0x81, "root@edge-1"] as const;
    const variants: Record<string, RequestVariant> = {
      "a URI": { extensions: [[{ ...names, names: [dns("edge-1"), uri] }]] },
      "a mail address": { extensions: [[{ ...names, names: [mail] }]] },
      "half an address": { extensions: [[{ ...names, names: [[0x87, [10, 0]]] }]] },
      "an authority's extension": { extensions: [[{ oid: [0x55, 0x1d, 0x13], names: [] }]] },
      "a second extension": { extensions: [[names, { oid: [0x55, 0x1d, 0x13], names: [] }]] },
      "names twice": { extensions: [[names, { ...names, names: [dns("api")] }]] },
      "a second list of extensions": { extensions: [[names], [{ ...names, names: [dns("api")] }]] },
      "another attribute": { extensions: [[names]], attribute: [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x07] },
      "another version": { extensions: [[names]], version: [1] },
    };
    for (const [what, variant] of Object.entries(variants))
      assert.match(why(by(variant)) ?? "", /^the request has /, what);
  });

  test("rejects encodings that other parsers could read differently", () => {
    const good = requestDer([nodes, named(user)], { extensions: [[names]] });
    const bad = requestDer([nodes, named(user)], { extensions: [[{ ...names, names: [dns("api")] }]] });
    const long = Buffer.concat([Buffer.from([0x30, 0x83, 0x00]), good.subarray(2)]);
    const texts = {
      "two blocks": pemOf(good) + pemOf(bad),
      "a text before": `x\n${pemOf(good)}`,
      headers: pemOf(good).replace("-----\n", "-----\na: b\n\n"),
      "another type": pemOf(good).replaceAll("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
      "bytes behind": pemOf(Buffer.concat([good, Buffer.from([5, 0])])),
      "bytes missing": pemOf(good.subarray(0, -1)),
      "a length in a longer form": pemOf(long),
      "a tag of two bytes": pemOf(Buffer.from([0x3f, 0x82, 0x01, 0x00])),
      "more than any request": pemOf(Buffer.concat([good, Buffer.alloc(20_000)])),
      "no base64": pemOf(good).replace(/M/, "="),
      nothing: "",
    };
    for (const [what, text] of Object.entries(texts)) assert.match(why(text) ?? "", /^the request has /, what);
  });
});

describe("approval of serving certificate requests", () => {
  const lab = (answer: (call: Call) => unknown, addresses: readonly string[] = own.addresses) => {
    const client = fakeClient(answer);
    const clock = fakeClock();
    const told: string[] = [];
    const log = {
      ...silent,
      warn: (fields: object, text: string) => void told.push(`${text} ${JSON.stringify(fields)}`),
    };
    const at = { ...own, addresses: () => Promise.resolve(addresses) };
    return { client, clock, told, approve: createApprover({ ...at, client, clock, log }) };
  };
  const signal = () => AbortSignal.timeout(20_000);

  test("approves a valid request at the resource version that it has checked", async () => {
    const { client, approve, told } = lab(() => ({}));
    await approve(request(right), signal());
    const [call] = client.calls;
    assert.equal(call?.verb, "update");
    assert.equal(call?.path, "/apis/certificates.k8s.io/v1/certificatesigningrequests/node-csr-1/approval");
    const sent = bodyOf<CertificateSigningRequest>(client, 0);
    assert.equal(sent.metadata.resourceVersion, "7");
    assert.deepEqual(
      sent.status?.conditions?.map(({ type, status }) => [type, status]),
      [["Approved", "True"]],
    );
    assert.deepEqual(told, []);
  });

  test("leaves an invalid request and logs the reason and the remedy", async () => {
    const { client, approve, told } = lab(() => ({}), ["10.0.0.8"]);
    await approve(request(right), signal());
    assert.deepEqual(client.calls, []);
    assert.equal(told.length, 1);
    assert.match(
      told[0] ?? "",
      /^certificate request not approved; if it is valid, run: kubectl certificate approve node-csr-1 /,
    );
    assert.match(told[0] ?? "", /it contains \[.*10\.0\.0\.9.*but only edge-1, 10\.0\.0\.8 belong to the node/);
  });

  test("keeps retrying while the API server forbids the approval, and logs that once", async () => {
    let tries = 0;
    const { clock, approve, told } = lab(() => {
      tries += 1;
      if (tries < 4) throw new ApiError("permission_denied", "not yet", { status: 403, reason: "Forbidden" });
      return {};
    });
    const done = approve(request(right), signal());
    await clock.advance(60_000);
    await done;
    assert.equal(tries, 4);
    assert.equal(told.length, 1);
    assert.match(told[0] ?? "", /cannot approve certificate request; retrying .*"code":"permission_denied"/);
  });

  test("stops if the request is changed or deleted, or if the signal aborts", async () => {
    for (const code of ["conflict", "not_found"] as const) {
      const { client, approve, told } = lab(() => {
        throw new CodedError(code, "changed");
      });
      await approve(request(right), signal());
      assert.deepEqual([client.calls.length, told], [1, []]);
    }
    const stop = new AbortController();
    const { approve } = lab(() => {
      throw new CodedError("unavailable", "no answer");
    });
    const done = approve(request(right), stop.signal);
    stop.abort();
    await done;
  });
});
