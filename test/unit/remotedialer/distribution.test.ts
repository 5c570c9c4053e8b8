import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { onlyServer, readDistribution } from "../../../src/remotedialer/distribution.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeClient } from "../api/fake-client.ts";

const never = new AbortController().signal;

test("reads the distribution from the API server's version", async () => {
  const distributionOf = (gitVersion: string) =>
    readDistribution(
      fakeClient(() => ({ gitVersion })),
      fakeClock(),
      never,
    );
  assert.equal(await distributionOf("v1.36.1+k3s1"), "k3s");
  assert.equal(await distributionOf("v1.36.1+rke2r2"), "rke2");
  assert.equal(await distributionOf("v1.36.1"), undefined);
  assert.equal(await distributionOf("v1.36.1-eks-123"), undefined);
});

test("asks for the version every five seconds until the API server answers", async () => {
  const clock = fakeClock();
  const times: number[] = [];
  const client = fakeClient(() => {
    times.push(clock.monotonic());
    if (times.length < 3) throw new CodedError("unavailable", "it is away");
    return { gitVersion: "v1.36.1+k3s1" };
  });
  const distribution = readDistribution(client, clock, never);
  await clock.advance(20_000);
  assert.deepEqual([await distribution, times], ["k3s", [0, 5_000, 10_000]]);
});

test("stops asking when the node stops", async () => {
  const stop = new AbortController();
  const client = fakeClient(() => {
    throw new CodedError("unavailable", "it is away");
  });
  const clock = fakeClock();
  const rejected = assert.rejects(readDistribution(client, clock, stop.signal));
  await clock.advance(0);
  stop.abort();
  await rejected;
  await clock.advance(60_000);
  assert.equal(client.calls.length, 1);
});

test("a kubeconfig's server is the only endpoint", async () => {
  const endpoints = (url: string) =>
    onlyServer(url)
      .list()
      .map(({ addressType, endpoints: found, ports }) => [addressType, found?.[0]?.addresses, ports?.[0]?.port]);
  assert.deepEqual(endpoints("https://10.0.0.1:6443"), [["IPv4", ["10.0.0.1"], 6443]]);
  assert.deepEqual(endpoints("https://[fd00::1]"), [["IPv6", ["fd00::1"], 443]]);
  assert.deepEqual(endpoints("https://api.example.org/"), [["IPv4", ["api.example.org"], 443]]);
  await onlyServer("https://h").ready(never);
});
