import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { systemClock } from "../../../src/lib/clock.ts";
import {
  type PluginProgram,
  type PluginRequest,
  createPluginRunner,
} from "../../../src/runtime/images/credential-plugin.ts";

const directory = mkdtempSync(join(tmpdir(), "graftlet-plugins-"));
after(() => rmSync(directory, { recursive: true }));

const apiVersion = "credentialprovider.kubelet.k8s.io/v1";
const whole = { kind: "CredentialProviderResponse", apiVersion, cacheKeyType: "Registry" };

function program(name: string, script: string, more: Partial<PluginProgram> = {}): PluginProgram {
  const path = join(directory, name);
  writeFileSync(path, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return { name, path, args: [], env: [], apiVersion, ...more };
}

/** A plugin that returns this response. */
const saying = (name: string, answer: unknown) =>
  program(name, `cat >/dev/null; cat <<'EOF'\n${typeof answer === "string" ? answer : JSON.stringify(answer)}\nEOF`);

function rig() {
  const runs: string[] = [];
  const stop = new AbortController();
  const measures = {
    pluginRan: (plugin: string, _ms: number, failed: boolean) => void runs.push(`${plugin} ${failed}`),
  };
  const run = createPluginRunner({ measures, clock: systemClock(), stop: stop.signal });
  const ask = (asked: PluginProgram, request: PluginRequest = { image: "registry.test/app" }) => run(asked, request);
  return { ask, runs, stop };
}

/** The message of the error that the call rejects with. */
const failure = (call: Promise<unknown>) =>
  call.then(
    () => assert.fail("it did not fail"),
    (error: Error) => error.message,
  );

describe("a credential provider plugin", () => {
  it("gets the request, its arguments and environment, and returns credentials", async () => {
    const { ask, runs } = rig();
    const script = `request=$(cat); printf '{"kind":"CredentialProviderResponse","apiVersion":"${apiVersion}","cacheKeyType":"Image",'
printf '"cacheDuration":"1m30s","auth":{"registry.test":{"username":"%s %s %s","password":"' "$1" "$OWN" "\${PATH:+path}"
printf '%s' "$request" | base64 -w0; printf '"}}}'`;
    const plugin = program("whole", script, { args: ["get"], env: [{ name: "OWN", value: "mine" }] });
    const request = { image: "registry.test/app", serviceAccountToken: "t", serviceAccountAnnotations: { a: "b" } };
    const { cacheKeyType, cacheMs, logins } = await ask(plugin, request);
    const [[location, login] = assert.fail()] = logins;
    assert.deepEqual(
      [cacheKeyType, cacheMs, location, login.username],
      ["Image", 90_000, "registry.test", "get mine path"],
    );
    assert.deepEqual(JSON.parse(Buffer.from(login.password, "base64").toString()), {
      kind: "CredentialProviderRequest",
      apiVersion,
      ...request,
    });
    assert.deepEqual(runs, ["whole false"]);
  });

  it("a credential provider plugin may answer without reading its input, and without credentials and duration", async () => {
    const { ask } = rig();
    const plugin = program("deaf", `exec 0<&-; echo '${JSON.stringify(whole)}'`);
    assert.deepEqual(await ask(plugin, { image: "x".repeat(1e5) }), {
      cacheKeyType: "Registry",
      cacheMs: undefined,
      logins: [],
    });
  });

  it("a credential provider plugin that fails reports the reason and counts as failed", async () => {
    const { ask, runs } = rig();
    const of = (name: string) => `error execing credential provider plugin ${name} for image registry.test/app`;
    assert.equal(
      await failure(ask(program("bad", "echo no account >&2; exit 3"))),
      `${of("bad")}: exit status 3: no account`,
    );
    assert.equal(await failure(ask(program("shot", "kill -9 $$"))), `${of("shot")}: signal: SIGKILL`);
    const missing = { ...program("gone", ""), path: join(directory, "missing"), args: ["--password=hunter2"] };
    assert.equal(await failure(ask(missing)), `${of("gone")}: ENOENT`);
    assert.equal(await failure(ask(program("endless", "yes"))), `${of("endless")}: more than 1048576 bytes of output`);
    assert.deepEqual(runs, ["bad true", "shot true", "gone true", "endless true"]);
  });

  it("a credential provider plugin that hangs is killed when the node stops", async () => {
    const { ask, stop } = rig();
    const hung = failure(ask(program("hung", "sleep 600")));
    stop.abort();
    assert.match(await hung, /^error execing credential provider plugin hung/);
  });

  it("a credential provider plugin with an invalid response is ignored, and its response is not revealed", async () => {
    const { ask, runs } = rig();
    const decoding = "error decoding credential provider plugin response from stdout";
    const login = { username: "u", password: "hunter2" };
    const cases: readonly (readonly [unknown, string])[] = [
      ["hunter2", decoding],
      [[], decoding],
      [{ ...whole, apiVersion: undefined }, decoding],
      [{ ...whole, kind: "hunter2" }, decoding],
      [{ ...whole, hunter2: "" }, decoding],
      [{ ...whole, auth: "hunter2" }, decoding],
      [{ ...whole, auth: { "registry.test": { ...login, more: "" } } }, decoding],
      [{ ...whole, auth: { "registry.test": "hunter2" } }, decoding],
      [{ ...whole, cacheDuration: "hunter2" }, decoding],
      [
        { ...whole, apiVersion: `${apiVersion}beta1` },
        `apiVersion from credential plugin response did not match expected apiVersion:${apiVersion}, actual apiVersion:${apiVersion}beta1`,
      ],
      [{ ...whole, cacheKeyType: "Pod" }, "credential provider plugin did not return a valid cacheKeyType: Pod"],
    ];
    for (const [index, [answer, message]] of cases.entries())
      assert.equal(await failure(ask(saying(`says-${index}`, answer))), message);
    assert.ok(
      runs.every((run) => run.endsWith(" false")),
      "the program itself did not fail",
    );
  });
});
