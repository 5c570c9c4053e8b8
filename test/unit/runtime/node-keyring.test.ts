import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { createLogger } from "../../../src/lib/log.ts";
import { createNodeKeyring } from "../../../src/runtime/images/node-keyring.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

const auths = (username: string) => ({ "registry.test": { auth: Buffer.from(`${username}:p`).toString("base64") } });

function rig(context: TestContext) {
  const place = mkdtempSync(join(tmpdir(), "graftlet-docker-"));
  context.after(() => rmSync(place, { recursive: true }));
  for (const name of ["root", "work", "home/.docker"]) mkdirSync(join(place, name), { recursive: true });
  const clock = fakeClock();
  const lines: string[] = [];
  const keyring = createNodeKeyring({
    rootDir: join(place, "root"),
    workingDir: join(place, "work"),
    home: join(place, "home"),
    readFile: (path) => readFile(path, "utf8"),
    clock,
    log: createLogger(9, { write: (line: string) => void lines.push(line) }),
  });
  const put = (path: string, content: unknown) =>
    writeFileSync(join(place, path), typeof content === "string" ? content : JSON.stringify(content));
  const users = async () => (await keyring("registry.test/app", aPod({}), never)).map(([, { username }]) => username);
  return { clock, lines, put, users };
}

/** Longer than the cache duration. */
const laterMs = 5 * 60_000;

describe("node credentials", () => {
  it("node credentials are read from the first Docker configuration, and again after five minutes", async (context) => {
    const { put, users, clock } = rig(context);
    assert.deepEqual(await users(), []);
    put("home/.dockercfg", auths("old"));
    await clock.advance(laterMs - 1);
    assert.deepEqual(await users(), []);
    for (const [path, content, user] of [
      ["home/.dockercfg", auths("old"), "old"],
      ["home/.docker/config.json", { auths: auths("home") }, "home"],
      ["work/config.json", { auths: auths("work") }, "work"],
      ["root/config.json", { auths: auths("root") }, "root"],
    ] as const) {
      put(path, content);
      await clock.advance(laterMs);
      assert.deepEqual(await users(), [user]);
    }
  });

  it("node credentials are skipped if they cannot be parsed, without logging their content", async (context) => {
    const { put, users, lines } = rig(context);
    put("root/config.json", "hunter2");
    put("work/config.json", { auths: { "registry.test": { auth: "hunter2" } } });
    put("home/.docker/config.json", { auths: auths("home") });
    assert.deepEqual(await users(), ["home"]);
    assert.equal(lines.length, 2);
    assert.match(lines.join(), /ignoring Docker configuration: it is not a JSON object/);
    assert.doesNotMatch(lines.join(), /hunter2/);
  });
});
