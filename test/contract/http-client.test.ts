import assert from "node:assert/strict";
import { once } from "node:events";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { sshHost } from "../../providers/ssh/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import { firstLine, start } from "../harness/processes.ts";
import type { HttpCase } from "./http-client/case.ts";
import { httpCases } from "./http-client/cases.ts";
import { namedDifferences } from "./http-client/requests.ts";
import { type Ask, type HttpClient, type Said, graftletClient, startKubeletClient } from "./http-client/clients.ts";
import { type ServerKind, startServer } from "./http-client/servers.ts";
import { type SshdRig, startSshdRig } from "./sshd-rig.ts";

const atOnce = 12;

describe("HTTP probes and hooks compared with the kubelet's own", { timeout: 120_000 }, () => {
  let kubelet: HttpClient & AsyncDisposable;
  before(async () => {
    // Neither may ask a proxy.
    for (const name of ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"])
      process.env[name] = "http://127.0.0.1:1";
    kubelet = await startKubeletClient();
  });
  after(() => kubelet[Symbol.asyncDispose]());

  test("HTTP probes and hooks send the kubelet's request to every server, and return its verdict and message", async () => {
    assert.deepEqual(await differencesAmong(kubelet, httpCases()), []);
  });

  test("HTTP probes and hooks differ from the kubelet's in exactly the documented cases", async () => {
    const named = namedDifferences();
    const differences = await differencesAmong(kubelet, named);
    assert.deepEqual(
      named.map(({ name }) => name).filter((name) => !differences.some((difference) => difference.startsWith(name))),
      [],
    );
  });
});

describe("HTTP probes of a target over SSH", { timeout: 120_000 }, () => {
  test("HTTP probes over SSH return the kubelet's verdicts and messages, except for reset connections", async () => {
    await using kubelet = await startKubeletClient();
    await using rig = await startSshdRig("http-client");
    await using host = sshHost({ config: rig.config({ user: "root" }), clock: systemClock(), log: silentLog() });
    // A reset arrives as an end: SSH has no word for it.
    const isTold = ({ name, kind }: HttpCase) => kind !== "hook" && !name.startsWith("reset");
    const cases = httpCases().filter((one) => isPlain(one.server) && isTold(one));
    const some = cases.filter((_, index) => index % 12 === 0);
    await using servers = await serveBeside(
      rig,
      some.map(({ server }) => server),
    );
    const differences: string[] = [];
    for (const [index, { name, server, action, timeoutMs = 5000 }] of some.entries()) {
      await using local = await startServer(server);
      const ask = (port: number): Ask => ({
        kind: "probe",
        action: { port, ...action },
        podIP: "127.0.0.1",
        timeoutMs,
      });
      const port = servers.ports[index] ?? 0;
      const [theirs, ours] = [await kubelet.ask(ask(local.port)), await graftletClient(host).ask(ask(port))];
      const expected = withoutEnds(comparable(theirs, []), local.port);
      const actual = withoutEnds(comparable(ours, []), port);
      if (expected !== actual) differences.push(`${name}\n  kubelet:  ${expected}\n  graftlet: ${actual}`);
    }
    console.log(`${some.length} cases over SSH, ${differences.length} differ`);
    assert.deepEqual(differences, []);
  });
});

/** True for a server that another process can be told of. */
function isPlain(server: ServerKind): boolean {
  return !("http2" in server) && typeof server.answer !== "function" && !server.tls && !server.address;
}

/** Serves in the rig's network; ends when disposed of. */
async function serveBeside(
  rig: SshdRig,
  kinds: readonly ServerKind[],
): Promise<AsyncDisposable & { readonly ports: readonly number[] }> {
  const entry = join(import.meta.dirname, "http-client", "servers-entry.ts");
  const servers = start(rig.besideArgv([process.execPath, entry]), { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(servers, "exit");
  servers.stdin?.end(JSON.stringify(kinds));
  return {
    ports: JSON.parse(await firstLine(servers)) as number[],
    async [Symbol.asyncDispose]() {
      servers.kill("SIGKILL");
      await ended;
    },
  };
}

function withoutEnds(text: string, port: number): string {
  return text.replace(/(read|write) tcp \S+: /, "").replaceAll(`:${port}`, ":PORT");
}

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
    // What Go says of a connection that ends before the request was written, if it sees the end first.
    .replace(/http: server closed idle connection$/, "EOF")
    .replace(/(lookup \S+) on \S+:53/, "$1")
    .replaceAll(/\ufffd+/g, "\ufffd")
    .replace(
      /(context deadline exceeded|net\/http: request canceled\b.*?|dial tcp \S+ i\/o timeout)( \(Client\.Timeout.*|$)/,
      "timeout",
    );
  return JSON.stringify({ is, output: text, fallback, requests });
}
