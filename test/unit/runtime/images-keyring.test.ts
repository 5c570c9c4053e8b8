import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Secret } from "../../../src/objects.ts";
import { credentialsFor, keyringOfSecrets } from "../../../src/runtime/images/keyring.ts";

const base64 = (text: string) => Buffer.from(text).toString("base64");
const metadata = { name: "pull", namespace: "apps", uid: "u" };

function secretOf(auths: object): Secret {
  return {
    metadata,
    type: "kubernetes.io/dockerconfigjson",
    data: { ".dockerconfigjson": base64(JSON.stringify({ auths })) },
  };
}

/** Each location's credentials have the location as user name. */
function secretFor(...locations: readonly string[]): Secret {
  return secretOf(Object.fromEntries(locations.map((location) => [location, { username: location, password: "x" }])));
}

const users = (repository: string, ...secrets: readonly Secret[]) =>
  credentialsFor(repository, keyringOfSecrets(secrets)).map(({ username }) => username);

describe("credentials for an image", () => {
  const cases: readonly (readonly [location: string, repository: string, fits: boolean])[] = [
    ["registry.example.com", "registry.example.com/team/app", true],
    ["https://registry.example.com", "registry.example.com/team/app", true],
    ["http://registry.example.com/v1/", "registry.example.com/team/app", true],
    ["registry.example.com/v2/team", "registry.example.com/team/app", true],
    ["registry.example.com/team", "registry.example.com/team/app", true],
    ["registry.example.com/other", "registry.example.com/team/app", false],
    ["registry.example.com:5000", "registry.example.com/team/app", false],
    ["registry.example.com:5000", "registry.example.com:5000/app", true],
    ["*.example.com", "registry.example.com/app", true],
    ["*.example.com", "example.com/app", false],
    ["*.example.com", "a.b.example.com/app", false],
    ["reg*st*y.*.com", "registry.example.com/app", true],
    ["reg*y.*y.com", "registry.example.com/app", false],
    ["*registryx.example.com", "registry.example.com/app", false],
    ["registry*y.example.com", "registry.example.com/app", false],
    ["*.*.*", "registry.example.com/app", true],
    ["*", "registry.example.com/app", false],
    ["https://index.docker.io/v1/", "docker.io/library/busybox", true],
    ["index.docker.io", "docker.io/library/busybox", true],
    ["docker.io", "docker.io/library/busybox", true],
    ["https://index.docker.io/v1/", "quay.io/x", false],
    ["*************************x.example.com", `${"a".repeat(60)}.example.com/app`, false],
  ];
  for (const [location, repository, fits] of cases) {
    it(`${location} ${fits ? "matches" : "does not match"} ${repository}`, () =>
      assert.deepEqual(users(repository, secretFor(location)), fits ? [location] : []));
  }
  it("credentials for an image are ordered by specificity, then by secret", () => {
    const first = secretFor("quay.io", "quay.io/team", "quay.io/team/app");
    assert.deepEqual(users("quay.io/team/app", first), ["quay.io/team/app", "quay.io/team", "quay.io"]);
    const one = secretOf({ "quay.io": { username: "one", password: "" } });
    const two = secretOf({ "https://quay.io": { username: "two", password: "" } });
    assert.deepEqual(users("quay.io/x", one, two), ["one", "two"]);
  });
  it("credentials for an image under Docker Hub's legacy key are used only if no others match", () => {
    assert.deepEqual(users("docker.io/library/busybox", secretFor("index.docker.io", "docker.io")), ["docker.io"]);
  });
  it("credentials for an image are decoded from auth, which takes precedence", () => {
    const secret = secretOf({ "quay.io": { auth: base64("bob:pa:ss"), username: "eve", password: "no" } });
    const credentialHash = "f89a1eb04f297f42c5be8bc014677a1c4bfe7f4814bb14076e9dfedef4b40434";
    const source = { uid: "u", namespace: "apps", name: "pull", credentialHash };
    assert.deepEqual(credentialsFor("quay.io/x", keyringOfSecrets([secret])), [
      { username: "bob", password: "pa:ss", source: { secret: source } },
    ]);
  });
  it("credentials for an image have the kubelet's hash", () => {
    const secret = secretOf({ "quay.io": { username: "bob", password: "<&>", email: "b@x" } });
    const [{ source } = assert.fail()] = credentialsFor("quay.io/x", keyringOfSecrets([secret]));
    // SHA-256 of {"username":"bob","password":"\\u003c\\u0026\\u003e","email":"b@x"}
    assert.equal(source?.secret?.credentialHash, "1dec2233d058ecef45ebc3859bc7034f657f7d6946c0078fc5f1495406295272");
  });
  it("credentials for an image are read from dockercfg secrets, and from no other type", () => {
    const old: Secret = {
      metadata,
      type: "kubernetes.io/dockercfg",
      data: { ".dockercfg": base64(JSON.stringify({ "quay.io": { username: "old", password: "" } })) },
    };
    assert.deepEqual(users("quay.io/x", old), ["old"]);
    assert.deepEqual(users("quay.io/x", { ...old, type: "Opaque" }), []);
    assert.deepEqual(users("quay.io/x", { metadata, type: "kubernetes.io/dockerconfigjson" }), []);
  });
  it("credentials for an image are not revealed when they cannot be parsed", () => {
    const broken = (text: string): Secret => ({
      metadata,
      type: "kubernetes.io/dockerconfigjson",
      data: { ".dockerconfigjson": base64(text) },
    });
    for (const secret of [
      broken('{"auths": hunter2'),
      broken('"hunter2"'),
      secretOf({ "quay.io": { auth: base64("hunter2") } }),
      secretOf({ "quay.io": "hunter2" }),
    ]) {
      assert.throws(
        () => credentialsFor("quay.io/x", keyringOfSecrets([secret])),
        (error: Error) => {
          assert.match(error.message, /^image pull secret apps\/pull: /);
          assert.doesNotMatch(`${error.message} ${String(error.cause)}`, /hunter2/);
          return true;
        },
      );
    }
  });
});
