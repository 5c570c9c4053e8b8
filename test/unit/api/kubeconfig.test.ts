import assert from "node:assert/strict";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { createCredentials } from "../../../src/api/credentials.ts";
import { kubeconfigFile, readKubeconfig, withCertificate, writeKubeconfig } from "../../../src/api/kubeconfig.ts";
import { serviceAccount } from "../../../src/api/service-account.ts";
import { makeSelfSigned } from "../../../src/certificates/self-signed.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { silent } from "./fake-client.ts";

interface Parts {
  readonly cluster?: object;
  readonly user?: object;
  readonly context?: object;
  readonly current?: string;
}

function folder() {
  const dir = mkdtempSync(join(tmpdir(), "kubeconfig-"));
  return {
    path: join(dir, "config"),
    dir,
    write({ cluster, user, context, current }: Parts) {
      const content = {
        "current-context": current ?? "main",
        clusters: [{ name: "c", cluster: { server: "https://127.0.0.1:1", ...cluster } }],
        contexts: [{ name: "main", context: { cluster: "c", user: "u", ...context } }],
        users: [{ name: "u", user: user ?? {} }],
      };
      writeFileSync(join(dir, "config"), JSON.stringify(content));
      return join(dir, "config");
    },
    [Symbol.dispose]: () => rmSync(dir, { recursive: true }),
  };
}

const credentialsOf = (path: string, clock = fakeClock(Date.now())) =>
  createCredentials({ from: kubeconfigFile(path), clock, log: silent });

test("describes each mistake in one sentence that names the file and the field", () => {
  using at = folder();
  assert.throws(() => readKubeconfig(at.path), {
    code: "not_found",
    message: `kubeconfig ${at.path} does not exist; specify one with --kubeconfig`,
  });
  const cases: readonly [Parts, string][] = [
    [{ current: "" }, "has no current-context; set it to one of its contexts (main)"],
    [{ current: "other" }, 'current-context "other" is not among its contexts (main)'],
    [{ context: { cluster: "d" } }, 'the current context names "d", which is not among the clusters'],
    [{ context: { user: "v" } }, 'the current context names "v", which is not among the users'],
    [{ cluster: { server: "" } }, "clusters[0].cluster.server is missing"],
    [{ cluster: { server: "here:80" } }, 'cluster "c" has server "here:80", which is not an http or https URL'],
    [
      { user: { "auth-provider": { name: "gcp" } } },
      'user "u" has an auth-provider, which is not supported; use exec, a token or a client certificate',
    ],
  ];
  for (const [parts, sentence] of cases) {
    assert.throws(() => readKubeconfig(at.write(parts)), {
      code: "invalid_argument",
      message: `kubeconfig ${at.path}: ${sentence}`,
    });
  }
  writeFileSync(at.path, "");
  assert.throws(() => readKubeconfig(at.path), {
    message: `kubeconfig ${at.path}: contains no configuration; create one with \`kubectl config\``,
  });
});

test("resolves files relative to the kubeconfig, and names an unreadable one", () => {
  using at = folder();
  const path = at.write({
    cluster: { "certificate-authority": "ca.crt" },
    user: { "client-certificate": "pki/c.pem" },
  });
  const { cluster, user } = readKubeconfig(path);
  assert.equal(cluster.caFile, join(at.dir, "ca.crt"));
  assert.equal(user.certFile, join(at.dir, "pki/c.pem"));
  assert.throws(() => credentialsOf(path), {
    message: new RegExp(`^kubeconfig ${path}: certificate-authority ${at.dir}/ca.crt cannot be read: `),
  });
});

test("refuses an expired client certificate; accepts certificate and key in one file", async () => {
  using at = folder();
  const made = await makeSelfSigned("n1", [], Date.now());
  writeFileSync(join(at.dir, "current.pem"), made.certificate + made.key);
  const path = at.write({ user: { "client-certificate": "current.pem", "client-key": "current.pem" } });
  const { tls } = await credentialsOf(path).current();
  assert.equal(String(tls.cert), made.certificate + made.key);
  const later = fakeClock(Date.now() + 400 * 86_400_000);
  assert.throws(() => credentialsOf(path, later), {
    code: "invalid_argument",
    message: /: the client certificate \(.*current\.pem\) expired at 20\d\d-.*; renew it$/,
  });
});

test("loads a rotated certificate within seconds, but ignores an invalid one, and one written again", async () => {
  using at = folder();
  const [first, second] = [await makeSelfSigned("n1", [], Date.now()), await makeSelfSigned("n2", [], Date.now())];
  const pem = join(at.dir, "current.pem");
  writeFileSync(pem, first.certificate + first.key);
  const clock = fakeClock(Date.now());
  const credentials = credentialsOf(
    at.write({ user: { "client-certificate": "current.pem", "client-key": "current.pem" } }),
    clock,
  );
  const before = await credentials.current();
  writeFileSync(pem, "broken");
  await clock.advance(11_000);
  assert.equal((await credentials.current()).generation, before.generation);
  writeFileSync(pem, first.certificate + first.key);
  await clock.advance(11_000);
  assert.equal((await credentials.current()).generation, before.generation);
  writeFileSync(pem, second.certificate + second.key);
  await clock.advance(11_000);
  const after = await credentials.current();
  assert.equal(after.generation, before.generation + 1);
  assert.equal(String(after.tls.cert), second.certificate + second.key);
});

test("uses basic credentials, or a token from the kubeconfig, a file or a plugin", async () => {
  using at = folder();
  const authorization = async (user: object) =>
    (await credentialsOf(at.write({ user })).current()).headers["authorization"];
  assert.equal(await authorization({ token: "t" }), "Bearer t");
  assert.equal(await authorization({ username: "u", password: "p" }), `Basic ${Buffer.from("u:p").toString("base64")}`);
  writeFileSync(join(at.dir, "token"), "from-file\n");
  assert.equal(await authorization({ tokenFile: "token", token: "t" }), "Bearer from-file");
  const answer = JSON.stringify({ kind: "ExecCredential", status: { token: "from-plugin" } });
  const exec = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: "sh",
    args: ["-c", `[ -n "$KUBERNETES_EXEC_INFO" ] && echo '${answer}'`],
  };
  assert.equal(await authorization({ exec }), "Bearer from-plugin");
  await assert.rejects(authorization({ exec: { ...exec, args: ["-c", "echo no >&2; exit 1"] } }), {
    code: "unauthenticated",
    message: /^the credential plugin of user "u" failed: no/,
  });
});

test("rereads a token file after a minute, or immediately after the server refuses the token", async () => {
  using at = folder();
  const token = join(at.dir, "token");
  writeFileSync(token, "one");
  const clock = fakeClock(Date.now());
  const credentials = credentialsOf(at.write({ user: { tokenFile: "token" } }), clock);
  const header = async () => (await credentials.current()).headers["authorization"];
  assert.equal(await header(), "Bearer one");
  writeFileSync(token, "two");
  assert.equal(await header(), "Bearer one");
  await clock.advance(60_000);
  assert.equal(await header(), "Bearer two");
  writeFileSync(token, "three");
  credentials.refused();
  assert.equal(await header(), "Bearer three");
});

test("uses the service account's token and CA only in a Pod", async () => {
  using at = folder();
  const { dir } = at;
  writeFileSync(join(dir, "ca.crt"), "the CA");
  writeFileSync(join(dir, "token"), "one\n");
  assert.equal(serviceAccount({}, dir), undefined);
  const from = serviceAccount({ KUBERNETES_SERVICE_HOST: "fd00::1", KUBERNETES_SERVICE_PORT: "6443" }, dir);
  assert.ok(from);
  const clock = fakeClock();
  const credentials = createCredentials({ from, clock, log: silent });
  const { server, tls, headers } = await credentials.current();
  assert.equal(server.href, "https://[fd00::1]:6443/");
  assert.equal(String(tls.ca), "the CA");
  assert.equal(headers["authorization"], "Bearer one");
  writeFileSync(join(dir, "token"), "two");
  await clock.advance(60_000);
  assert.equal((await credentials.current()).headers["authorization"], "Bearer two");
});

test("once the certificate file exists, uses it as the user, with the cluster of the base kubeconfig", async () => {
  using at = folder();
  const base = kubeconfigFile(at.write({ user: { token: "first" } }));
  const file = join(at.dir, "current.pem");
  const access = withCertificate(base, "the node's certificate", file);
  assert.equal(access.read().user.token, "first");
  const made = await makeSelfSigned("node", [], Date.now());
  writeFileSync(file, made.certificate + made.key);
  assert.equal(access.read().user.token, undefined);
  const { tls, headers } = await createCredentials({
    from: access,
    clock: fakeClock(Date.now()),
    log: silent,
  }).current();
  assert.equal(String(tls.key), made.certificate + made.key);
  assert.deepEqual(headers, {});
  const written = join(at.dir, "made", "kubeconfig");
  await writeKubeconfig(written, access.read());
  assert.equal(statSync(written).mode & 0o777, 0o600);
  const again = readKubeconfig(written);
  assert.equal(again.user.certFile, file);
  assert.equal(again.cluster.server, base.read().cluster.server);
});

test("reads a service account's name and UID from its token", () => {
  const dir = mkdtempSync(join(tmpdir(), "graftlet-account-"));
  const from = serviceAccount({ KUBERNETES_SERVICE_HOST: "10.0.0.1" }, dir);
  assert.ok(from);
  assert.equal(from.account(), undefined);
  const withClaims = (claims: object) =>
    writeFileSync(join(dir, "token"), `h.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.s`);
  withClaims({ iss: "x" });
  assert.equal(from.account(), undefined);
  withClaims({ "kubernetes.io": { namespace: "n", serviceaccount: { name: "edge", uid: "1" }, pod: { name: "p" } } });
  assert.deepEqual(from.account(), { name: "edge", uid: "1" });
  rmSync(dir, { recursive: true });
});
