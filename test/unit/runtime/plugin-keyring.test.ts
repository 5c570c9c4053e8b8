import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { CredentialProvider } from "../../../src/config/credential-providers.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger } from "../../../src/lib/log.ts";
import type { Pod } from "../../../src/objects.ts";
import type { TokenRequest } from "../../../src/api/tokens.ts";
import type { PluginResponse, PluginRequest } from "../../../src/runtime/images/credential-plugin.ts";
import { createPluginKeyring } from "../../../src/runtime/images/plugin-keyring.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aPod } from "../../fakes/pods.ts";

const { signal } = new AbortController();

const plugin: CredentialProvider = {
  name: "one",
  path: "/bin/one",
  args: [],
  env: [],
  apiVersion: "credentialprovider.kubelet.k8s.io/v1",
  matchImages: ["registry.test/team", "*.mirror.test"],
  defaultCacheMs: 60_000,
};
const token = {
  audience: "registry",
  cacheType: "ServiceAccount",
  requireServiceAccount: true,
  requiredAnnotations: [],
  optionalAnnotations: [],
} as const;

function rig(plugins: readonly CredentialProvider[] = [plugin], annotations: Readonly<Record<string, string>> = {}) {
  const clock = fakeClock();
  const lines: string[] = [];
  const asked: PluginRequest[] = [];
  const tokens: TokenRequest[] = [];
  const next: { -readonly [Field in keyof PluginResponse]?: PluginResponse[Field] } & {
    failure?: Error;
    delay?: Promise<void>;
  } = {};
  let round = 0;
  const keyring = createPluginKeyring({
    plugins,
    async run({ name }, request) {
      asked.push(request);
      const login = { username: `${name}-${asked.length}`, password: "p", email: "" };
      const { failure, delay, ...answer } = next;
      await delay;
      if (failure) throw failure;
      return { cacheKeyType: "Image", cacheMs: undefined, logins: [["registry.test", login]], ...answer };
    },
    accounts: {
      async serviceAccount(namespace, name) {
        if (name === "gone") throw new CodedError("not_found", "gone");
        return { metadata: { namespace, name, uid: `uid-${name}`, annotations } };
      },
    },
    tokens: {
      async token(pod, request) {
        tokens.push(request);
        round += 1;
        const at = { expiresAt: clock.now() + 1e6, refreshAt: clock.now() + 1e6 };
        return { token: `${pod.spec.serviceAccountName}-token-${round}`, ...at };
      },
    },
    clock,
    log: createLogger(9, { write: (line: string) => void lines.push(line) }),
  });
  const users = async (image = "registry.test/team/app", pod: Pod = aPod({})) =>
    (await keyring(image, pod, signal)).map(([, { username }]) => username);
  return { clock, lines, asked, tokens, next, keyring, users };
}

const of = (serviceAccountName: string) => aPod({ serviceAccountName });

describe("credential provider plugins", () => {
  it("credential provider plugins run for images that they match", async () => {
    const other = { ...plugin, name: "two", matchImages: ["registry.test"] };
    const { users, asked } = rig([plugin, other]);
    assert.deepEqual(await users(), ["one-1", "two-2"]);
    assert.deepEqual(await users("registry.test/other"), ["two-3"]);
    assert.deepEqual(await users("registry.test:5000/team/app"), []);
    assert.deepEqual(await users("a.mirror.test/app"), ["one-4"]);
    assert.deepEqual(asked[0], { image: "registry.test/team/app" });
  });

  for (const [cacheKeyType, ofTeam, ofMirror] of [
    ["Image", "one-2", "one-3"],
    ["Registry", "one-1", "one-2"],
    ["Global", "one-1", "one-1"],
  ] as const) {
    it(`credential provider plugins with cache key type ${cacheKeyType} have their response cached for those images and for its duration`, async () => {
      const { users, next, clock, asked } = rig();
      Object.assign(next, { cacheKeyType, cacheMs: 10_000 });
      const seen = [await users(), await users(), await users("registry.test/team/b"), await users("a.mirror.test/x")];
      assert.deepEqual(seen.flat(), ["one-1", "one-1", ofTeam, ofMirror]);
      const before = asked.length;
      await clock.advance(10_000);
      await users();
      assert.equal(asked.length, before);
      await clock.advance(1);
      assert.deepEqual(await users(), [`one-${before + 1}`]);
    });
  }

  it("credential provider plugins have their response cached for the configured default, or not at all", async () => {
    const { users, next, clock } = rig();
    await users();
    await clock.advance(60_000);
    assert.deepEqual(await users(), ["one-1"]);
    await clock.advance(1);
    next.cacheMs = 0;
    assert.deepEqual([await users(), await users()].flat(), ["one-2", "one-3"]);
    const never = rig([{ ...plugin, defaultCacheMs: 0 }]);
    assert.deepEqual([await never.users(), await never.users()].flat(), ["one-1", "one-2"]);
  });

  it("credential provider plugins run once for concurrent requests", async () => {
    const { users, asked } = rig();
    assert.deepEqual(await Promise.all([users(), users()]), [["one-1"], ["one-1"]]);
    assert.equal(asked.length, 1);
  });

  it("credential provider plugins do not block a terminating pod; others still get the response", async () => {
    const { keyring, next, users, asked, lines } = rig();
    const { promise, resolve } = Promise.withResolvers<void>();
    next.delay = promise;
    const stop = new AbortController();
    const ended = keyring("registry.test/team/app", aPod({}), stop.signal);
    const other = users();
    stop.abort();
    await assert.rejects(ended, { code: "cancelled" });
    resolve();
    assert.deepEqual(await other, ["one-1"]);
    assert.deepEqual([asked.length, lines], [1, []]);
  });

  it("credential provider plugins are skipped with a log line if they fail", async () => {
    const { users, next, lines } = rig();
    next.failure = new Error("exit status 3");
    assert.deepEqual(await users(), []);
    assert.match(lines.join(), /Failed to provide credentials for image/);
    assert.match(lines.join(), /exit status 3/);
    delete next.failure;
    assert.deepEqual(await users(), ["one-2"]);
  });
});

describe("plugins that run on behalf of a service account", () => {
  it("plugins get the service account's token and the requested annotations; credentials belong to it", async () => {
    const own = { ...token, requiredAnnotations: ["a/id"], optionalAnnotations: ["a/team", "a/none"] };
    const { keyring, asked, tokens } = rig([{ ...plugin, token: own }], { "a/id": "1", "a/team": "x", "a/more": "y" });
    const [[, { source }] = assert.fail()] = await keyring("registry.test/team/app", of("builder"), signal);
    assert.deepEqual(source, { account: { uid: "uid-builder", namespace: "default", name: "builder" } });
    assert.deepEqual(tokens, [{ audience: "registry", expirationSeconds: 3600, accountUid: "uid-builder" }]);
    assert.deepEqual(asked, [
      {
        image: "registry.test/team/app",
        serviceAccountToken: "builder-token-1",
        serviceAccountAnnotations: { "a/id": "1", "a/team": "x" },
      },
    ]);
  });

  it("plugins do not run for a pod without a service account or a required annotation", async () => {
    const required = rig([{ ...plugin, token: { ...token, requiredAnnotations: ["a/id"] } }]);
    assert.deepEqual([await required.users(undefined, of("builder")), await required.users()].flat(), []);
    assert.deepEqual([required.asked, required.lines], [[], []], "it is no failure");
    const open = rig([{ ...plugin, token: { ...token, requireServiceAccount: false } }]);
    assert.deepEqual(await open.users(), ["one-1"]);
    assert.deepEqual(open.asked, [{ image: "registry.test/team/app" }]);
  });

  it("plugins have responses cached by service account, or by token", async () => {
    const { users } = rig([{ ...plugin, token }]);
    const seen = [await users(undefined, of("a")), await users(undefined, of("a")), await users(undefined, of("b"))];
    assert.deepEqual(seen.flat(), ["one-1", "one-1", "one-2"]);
    const byToken = rig([{ ...plugin, token: { ...token, cacheType: "Token" } }]);
    const each = [await byToken.users(undefined, of("a")), await byToken.users(undefined, of("a"))];
    assert.deepEqual(each.flat(), ["one-1", "one-2"], "a new token each time");
  });

  it("plugins may return the token as password only if responses are cached by token", async () => {
    const echo = (password: string) => [["registry.test", { username: "u", password, email: "" }] as const];
    const { users, next, lines } = rig([{ ...plugin, token }]);
    next.logins = echo("a-token-1");
    assert.deepEqual(await users(undefined, of("a")), []);
    assert.match(lines.join(), /returned the service account token as the password which is not allowed/);
    const byToken = rig([{ ...plugin, token: { ...token, cacheType: "Token" } }]);
    byToken.next.logins = echo("a-token-1");
    assert.deepEqual(await byToken.users(undefined, of("a")), ["u"]);
  });

  it("plugins are skipped if the service account cannot be read", async () => {
    const { users, lines, asked } = rig([{ ...plugin, token }]);
    assert.deepEqual(await users(undefined, of("gone")), []);
    assert.match(lines.join(), /Failed to provide credentials for image/);
    assert.deepEqual(asked, []);
  });
});
