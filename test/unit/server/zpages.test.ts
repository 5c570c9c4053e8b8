import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "yaml";
import { kubeletVersion } from "../../../src/version.ts";
import { type World, adminToken, ask, start } from "./harness.ts";

const flags = { "max-pods": "7", config: "/config" };

async function answer(path: string, accept?: string, world: World = {}, agent = "") {
  await using server = await start({ ...world, deps: { flags, ...world.deps } });
  const headers = { authorization: `Bearer ${adminToken}`, "user-agent": agent, ...(accept && { accept }) };
  return await ask(server, path, { headers });
}

const warning =
  "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n";
const flagzAs = (version: string, type = "application/json") => `${type};as=Flagz;v=${version};g=config.k8s.io`;

test("flagz: prints the flags in order as text, for clients that accept it", async () => {
  for (const accept of ["", " ", "text/plain", "*/*", "application/json, */*", "text/*;q=0.5"]) {
    const { status, body, headers } = await answer("/flagz", accept);
    assert.deepEqual([status, headers["content-type"]], [200, "text/plain; charset=utf-8"], accept);
    assert.match(
      body.replace(warning, "WARNING\n"),
      /^\nkubelet flagz\nWARNING\nconfig(:|: |=| )\/config\nmax-pods\1?7\n$/,
    );
  }
});

test("flagz: returns the object that the Accept header names, as JSON or YAML", async () => {
  const object = {
    kind: "Flagz",
    apiVersion: "config.k8s.io/v1beta1",
    metadata: { name: "kubelet" },
    flags: { config: "/config", "max-pods": "7" },
  };
  const json = await answer("/flagz", flagzAs("v1beta1"));
  assert.deepEqual([json.status, json.body], [200, `${JSON.stringify(object)}\n`]);
  assert.equal(json.headers["content-type"], "application/json;g=config.k8s.io;v=v1beta1;as=Flagz");
  assert.equal(json.headers["warning"], undefined);
  for (const [path, agent] of [
    ["/flagz?pretty=true", ""],
    ["/flagz", "curl/8"],
  ] as const)
    assert.equal((await answer(path, flagzAs("v1beta1"), {}, agent)).body, JSON.stringify(object, null, 2));
  const yaml = await answer("/flagz", `text/plain;q=0.1, ${flagzAs("v1alpha1", "application/yaml")}`);
  assert.deepEqual(parse(yaml.body), { ...object, apiVersion: "config.k8s.io/v1alpha1" });
  assert.equal(yaml.headers["content-type"], "application/yaml;g=config.k8s.io;v=v1alpha1;as=Flagz");
  assert.equal(
    yaml.headers["warning"],
    '299 - "This version of the flagz endpoint is deprecated. Please use a newer version."',
  );
});

test("flagz: responds 406 for media types and objects that it does not support", async () => {
  const message = "only the following media types are accepted: application/json, application/yaml, text/plain";
  for (const accept of [
    "application/json",
    "application/yaml",
    "image/png",
    flagzAs("v1"),
    "application/json;as=Statusz;v=v1beta1;g=config.k8s.io",
    "text/plain;as=Flagz",
    "application/json;stream=watch;as=Flagz;v=v1beta1;g=config.k8s.io",
  ]) {
    const { status, body } = await answer("/flagz", accept);
    assert.equal(status, 406, accept);
    assert.deepEqual(
      parse(body),
      {
        kind: "Status",
        apiVersion: "v1",
        metadata: {},
        status: "Failure",
        message,
        reason: "NotAcceptable",
        code: 406,
      },
      accept,
    );
  }
});

test("statusz: returns start, versions and paths, as text and as an object", async () => {
  const { body } = await answer("/statusz");
  assert.match(
    body.replace(warning, "WARNING\n"),
    /^\nkubelet statusz\nWARNING\n\nStarted(:|: |=| ) \w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d UTC \d{4}\nUp\1 \d+ hr \d\d min \d\d sec\nGo version\1 node v\d+\.\d+\.\d+\nBinary version\1 1\.36\.3\nEmulation version\1 1\.36\nPaths\1 \/configz \/debug \/flagz \/healthz \/metrics\n$/,
  );
  const { body: json } = await answer("/statusz", "application/json;as=Statusz;v=v1beta1;g=config.k8s.io");
  const { startTime, uptimeSeconds, ...rest } = JSON.parse(json) as { startTime: string; uptimeSeconds: number };
  assert.deepEqual(rest, {
    kind: "Statusz",
    apiVersion: "config.k8s.io/v1beta1",
    metadata: { name: "kubelet" },
    goVersion: `node ${process.version}`,
    binaryVersion: kubeletVersion.slice(1),
    emulationVersion: "1.36",
    paths: ["/configz", "/debug", "/flagz", "/healthz", "/metrics"],
  });
  assert.ok(Math.abs(Date.now() - Date.parse(startTime) - uptimeSeconds * 1000) < 5_000, startTime);
  const changed = { config: { flagz: false, enableSystemLogHandler: false } };
  const other = await answer("/statusz", "application/json;as=Statusz;v=v1beta1;g=config.k8s.io", changed);
  assert.deepEqual(JSON.parse(other.body).paths, ["/configz", "/debug", "/healthz", "/logs", "/metrics"]);
});

test("zpages: respond 404 without their feature gate, and without debugging handlers", async () => {
  assert.equal((await answer("/flagz", undefined, { config: { flagz: false } })).status, 404);
  assert.equal((await answer("/statusz", undefined, { config: { statusz: false } })).status, 404);
  for (const path of ["/flagz", "/statusz"])
    assert.equal((await answer(path, undefined, { config: { enableDebuggingHandlers: false } })).status, 404, path);
});
