import assert from "node:assert/strict";
import { test } from "node:test";
import { readCriConfig } from "../../../../providers/cri/config.ts";

const defaults = { containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock", imageServiceEndpoint: "" };

test("defaults to the kubelet's endpoints", () => {
  const socket = "/run/containerd/containerd.sock";
  assert.deepEqual(readCriConfig(undefined, defaults), {
    runtimeSocket: socket,
    imageSocket: socket,
    sharing: "exclusive",
    inPod: false,
  });
  assert.equal(
    readCriConfig({}, { ...defaults, imageServiceEndpoint: "unix:///run/images.sock" }).imageSocket,
    "/run/images.sock",
  );
  assert.equal(
    readCriConfig({}, { ...defaults, containerRuntimeEndpoint: "/run/crio.sock" }).runtimeSocket,
    "/run/crio.sock",
  );
});

test("the provider's own fields take precedence", () => {
  const config = { endpoint: "unix:///a.sock", sharing: "shared" };
  assert.deepEqual(readCriConfig(config, { ...defaults, imageServiceEndpoint: "unix:///old.sock" }), {
    runtimeSocket: "/a.sock",
    imageSocket: "/a.sock",
    sharing: "shared",
    inPod: false,
  });
  assert.equal(readCriConfig({ ...config, imageEndpoint: "unix:/b.sock" }, defaults).imageSocket, "/b.sock");
  assert.equal(readCriConfig({ inPod: true }, defaults).inPod, true);
});

const wrong: readonly (readonly [unknown, RegExp])[] = [
  [{ endpoints: "x" }, /providerConfig\.endpoints is not a field.*remove it/],
  [{ endpoint: "tcp://1.2.3.4:5" }, /providerConfig\.endpoint is "tcp:\/\/1\.2\.3\.4:5".*unix:\/\//],
  [{ endpoint: 3 }, /providerConfig\.endpoint is 3.*unix:\/\//],
  [{ endpoint: "unix://relative.sock" }, /providerConfig\.endpoint/],
  [{ imageEndpoint: "" }, /providerConfig\.imageEndpoint is ""/],
  [{ inPod: "yes" }, /providerConfig\.inPod is "yes": write true if graftlet runs in a privileged Pod/],
  [{ sharing: "some" }, /providerConfig\.sharing is "some": write exclusive or shared/],
  [["endpoint"], /not a map of fields/],
];
for (const [config, message] of wrong) {
  test(`rejects the configuration ${JSON.stringify(config)} with one sentence`, () => {
    assert.throws(() => readCriConfig(config, defaults), { code: "invalid_argument", message });
  });
}

test("names the field of an invalid endpoint in the kubelet's configuration", () => {
  assert.throws(() => readCriConfig({}, { ...defaults, containerRuntimeEndpoint: "npipe:////./pipe/x" }), {
    code: "invalid_argument",
    message: /^containerRuntimeEndpoint is/,
  });
});
