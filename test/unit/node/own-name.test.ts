import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { Resolver } from "node:dns/promises";
import { once } from "node:events";
import { test } from "node:test";
import { type NameSources, nameResolves } from "../../../src/node/own-name.ts";
import { never } from "../../fakes/signals.ts";

/** Files by path, and the name servers' answers by name: addresses, or an error code. */
function sources(files: Record<string, string>, answers: Record<string, string[] | string> = {}) {
  const asked: string[] = [];
  const say = async (name: string): Promise<string[]> => {
    asked.push(name);
    const answer = answers[name] ?? "ENOTFOUND";
    if (typeof answer === "string") throw Object.assign(new Error(answer), { code: answer });
    return answer;
  };
  const resolver = () => ({ resolve4: say, resolve6: say, cancel: () => {} }) as ReturnType<NameSources["resolver"]>;
  const readFile = async (path: string) => {
    const text = files[path];
    if (text === undefined) throw new Error("no such file");
    return text;
  };
  return { asked, sources: { readFile, resolver } };
}

test("resolves an address or a name in /etc/hosts without a query", async () => {
  const { asked, sources: own } = sources({ "/etc/hosts": "127.0.0.1 localhost\n::1 ip6 Node-1 # node-2\n" });
  assert.equal(await nameResolves("10.0.0.1", never, own), true);
  assert.equal(await nameResolves("node-1", never, own), true);
  assert.deepEqual(asked, []);
  assert.equal(await nameResolves("node-2", never, own), false);
});

test("queries name servers for the name and for each search domain", async () => {
  const files = { "/etc/resolv.conf": "search old.example\nnameserver 10.0.0.53\nsearch a.example b.example.\n" };
  const { asked, sources: own } = sources(files, { "node-1.b.example": ["10.0.0.1"] });
  assert.equal(await nameResolves("node-1", never, own), true);
  assert.deepEqual([...new Set(asked)], ["node-1", "node-1.a.example", "node-1.b.example"]);
  assert.equal(await nameResolves("node-2", never, own), false);
});

test("fails if no name server answers", async () => {
  const { sources: own } = sources({}, { silent: "ETIMEOUT" });
  await assert.rejects(nameResolves("silent", never, own), { code: "ETIMEOUT" });
});

test("stops waiting for a name server when the signal aborts", async (t) => {
  const silent = createSocket("udp4");
  t.after(() => silent.close());
  silent.bind(0, "127.0.0.1");
  await once(silent, "listening");
  const resolver = () => {
    const asking = new Resolver({ timeout: 60_000, tries: 1 });
    asking.setServers([`127.0.0.1:${silent.address().port}`]);
    return asking;
  };
  const stop = new AbortController();
  silent.once("message", () => stop.abort(new Error("stopped")));
  await assert.rejects(nameResolves("node-1", stop.signal, { readFile: async () => "", resolver }), /stopped/);
});
