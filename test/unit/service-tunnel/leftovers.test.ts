import assert from "node:assert/strict";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { createLogger } from "../../../src/lib/log.ts";
import { removeTunnelLeftovers } from "../../../src/service-tunnel/leftovers.ts";
import { tunnelName } from "../../../src/service-tunnel/rules.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";

const rootDir = "/var/lib/kubelet/edge-1";

/** Runs the service on a target with a table of an earlier tunnel, until it idles. */
async function run(removes: () => number) {
  const host = fakeHost({ clock: fakeClock() });
  const asked: string[] = [];
  host.program("nft", async (args, { stdin }) => {
    if (args[0] === "list") return args.at(-1) === tunnelName(rootDir) ? 0 : 1;
    asked.push(await text(stdin));
    return removes();
  });
  const lines: string[] = [];
  const log = createLogger(4, { write: (line) => void lines.push(line) });
  const stop = new AbortController();
  const done = removeTunnelLeftovers({ host, rootDir, log }).run(stop.signal);
  for (let turn = 0; turn < 50 && asked.length === 0; turn++) await new Promise(setImmediate);
  for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
  stop.abort();
  await done;
  return { asked: asked.join(), lines: lines.join("") };
}

test("removes the rules of an earlier service tunnel", async () => {
  const { asked, lines } = await run(() => 0);
  assert.match(asked, new RegExp(`delete table ip ${tunnelName(rootDir)}`));
  assert.equal(lines, "");
});

test("does not stop the node if the rules cannot be removed", async () => {
  const { lines } = await run(() => 1);
  assert.match(lines, /cannot remove leftovers of an earlier service tunnel/);
});
