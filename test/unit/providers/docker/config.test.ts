import assert from "node:assert/strict";
import { test } from "node:test";
import { readDockerConfig } from "../../../../providers/docker/config.ts";

test("defaults to Docker's socket and a network named after the node", () => {
  assert.deepEqual(readDockerConfig(undefined, "edge-1"), {
    socket: "/var/run/docker.sock",
    network: "graftlet-edge-1",
    sandboxImage: "registry.k8s.io/pause:3.10.2",
    inPod: false,
  });
});

test("reads every field of the configuration", () => {
  assert.deepEqual(
    readDockerConfig(
      {
        socket: "unix:///run/d.sock",
        network: "pods_1",
        podCIDR: "10.9.0.0/16",
        sandboxImage: "local/pause@sha256:ab",
        inPod: true,
      },
      "n",
    ),
    {
      socket: "/run/d.sock",
      network: "pods_1",
      podCIDR: "10.9.0.0/16",
      sandboxImage: "local/pause@sha256:ab",
      inPod: true,
    },
  );
});

const wrong: readonly [config: unknown, sentence: RegExp][] = [
  [{ endpoint: "x" }, /^providerConfig\.endpoint is not a field of the docker provider: remove it/],
  [["x"], /^providerConfig of the docker provider is not a map/],
  [{ socket: "tcp://10.0.0.1:2375" }, /^providerConfig\.socket is "tcp:.*write it as unix:/],
  [{ network: "host" }, /^providerConfig\.network is "host", which gives pods no addresses/],
  [{ network: "a b" }, /^providerConfig\.network is "a b", not the name of a Docker network/],
  ...["10.9.0.0", "10.9.0.0/30", "10.9.0.256/24", "fd00::/64", 7].map((podCIDR): [unknown, RegExp] => [
    { podCIDR },
    /^providerConfig\.podCIDR is .*: write it as 10\.88\.0\.0\/24\.$/,
  ]),
  [{ sandboxImage: "-x" }, /^providerConfig\.sandboxImage is "-x", not the name of an image/],
];
for (const [config, message] of wrong) {
  test(`rejects the configuration ${JSON.stringify(config)} with one sentence`, () =>
    assert.throws(() => readDockerConfig(config, "n"), { code: "invalid_argument", message }));
}
