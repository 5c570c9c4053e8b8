import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { HttpCase } from "./http-client/case.ts";
import { httpCases } from "./http-client/cases.ts";
import { namedDifferences } from "./http-client/requests.ts";
import { type Ask, type HttpClient, type Said, graftletClient, startKubeletClient } from "./http-client/clients.ts";
import { startServer } from "./http-client/servers.ts";

const atOnce = 12;

describe("HTTP probes and hooks beside the kubelet's own", { timeout: 120_000 }, () => {
  let kubelet: HttpClient & AsyncDisposable;
  before(async () => {
    // Neither may ask a proxy.
    for (const name of ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"])
      process.env[name] = "http://127.0.0.1:1";
    kubelet = await startKubeletClient();
  });
  after(() => kubelet[Symbol.asyncDispose]());

  test("every server gets the same request and leads to the same verdict and message", async () => {
    assert.deepEqual(await differencesAmong(kubelet, httpCases()), []);
  });

  test("what the documents name as different differs", async () => {
    const named = namedDifferences();
    const differences = await differencesAmong(kubelet, named);
    assert.deepEqual(
      named.map(({ name }) => name).filter((name) => !differences.some((difference) => difference.startsWith(name))),
      [],
    );
  });
});

/** Asks some at a time. @returns what differs, both answers beside each other. */
async function differencesAmong(kubelet: HttpClient, cases: readonly HttpCase[]): Promise<string[]> {
  const differences: string[] = [];
  const queue = [...cases];
  const worker = async () => {
    for (let next = queue.shift(); next; next = queue.shift()) {
      const difference = await compare(kubelet, next);
      if (difference) differences.push(difference);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  console.log(`${cases.length} cases, ${differences.length} differ`);
  return differences;
}

async function compare(kubelet: HttpClient, asked: HttpCase): Promise<string | undefined> {
  await using server = await startServer(asked.server);
  const ask: Ask = {
    kind: asked.kind ?? "probe",
    action: { port: server.port, ...asked.action },
    podIP: asked.podIP ?? "127.0.0.1",
    timeoutMs: asked.timeoutMs ?? 5000,
  };
  const expected = comparable(await kubelet.ask(ask), server.requests());
  const actual = comparable(await graftletClient().ask(ask), server.requests());
  return expected === actual ? undefined : `${asked.name}\n  kubelet:  ${expected}\n  graftlet: ${actual}`;
}

/** Without what no two requests have in common: the port that a connection comes from, and how bytes that are no text are shown. */
function comparable({ is, output, fallback }: Said, requests: readonly string[]): string {
  const text = output
    .replace(/(read|write) tcp \S+?->/, "$1 tcp …->")
    .replace(/http2: server sent GOAWAY and closed the connection.*/, "unexpected EOF")
    .replace(/(lookup \S+) on \S+:53/, "$1")
    .replaceAll(/\ufffd+/g, "\ufffd")
    .replace(
      /(context deadline exceeded|net\/http: request canceled\b.*?|dial tcp \S+ i\/o timeout)( \(Client\.Timeout.*|$)/,
      "timeout",
    );
  return JSON.stringify({ is, output: text, fallback, requests });
}
