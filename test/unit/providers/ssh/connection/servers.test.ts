import assert from "node:assert/strict";
import { test } from "node:test";
import type { Connection } from "../../../../../providers/ssh/connection/connection.ts";
import { createConnectionServers } from "../../../../../providers/ssh/connection/servers.ts";
import { command } from "../../../../../src/seams/command.ts";
import { never } from "../../../../fakes/signals.ts";

const connectionOf = (server?: string, lost = never) =>
  ({ lost, ...(server !== undefined && { server }) }) as Connection;

/** A link with these connections, and the commands that were run. @param code exit code of each command. */
function connected({ live, code = 0 }: { readonly live: readonly Connection[]; readonly code?: number }) {
  const ran: string[] = [];
  const { connections, check } = createConnectionServers({
    link: { connections: () => live },
    async run(argv) {
      ran.push(argv.join(" "));
      return { code, stdout: "", stderr: "", truncated: false };
    },
    async runOn(connection, argv) {
      ran.push(`over ${connection.server}: ${argv.join(" ")}`);
      return code;
    },
  });
  return { connections, check, ran };
}

const record = (server: string) => command("record", [], [server]);

test("a command runs for connections that are open and not known, and for each further one until that is ended", async () => {
  const live = ["1", "2"].map((server) => connectionOf(server));
  const { connections, check, ran } = connected({ live: [...live, connectionOf()] });
  assert.deepEqual(connections.servers(), ["1", "2"]);
  const end = await connections.onFurther(["1"], record, never);
  assert.deepEqual(ran.splice(0), ["record -- 2"]);
  await check(connectionOf("3"), never);
  await check(connectionOf(), never);
  assert.deepEqual(ran.splice(0), ["over 3: record -- 3"]);
  end();
  await check(connectionOf("4"), never);
  assert.deepEqual(ran, []);
});

test("a command also runs for a connection that is about to be used, but not for one that is lost", async () => {
  const { connections, check, ran } = connected({ live: [] });
  const end = new AbortController();
  await check(connectionOf("1", end.signal), never);
  await check(connectionOf("2"), never);
  end.abort();
  await connections.onFurther([], record, never);
  assert.deepEqual(ran, ["record -- 2"]);
});

test("a further connection whose command fails is refused", async () => {
  const { connections, check } = connected({ live: [], code: 91 });
  await connections.onFurther([], record, never);
  await assert.rejects(check(connectionOf("3"), never), { code: "failed_precondition", message: /ended with 91/ });
});

test("no command runs for further connections if it fails for one that is open", async () => {
  const { connections, check, ran } = connected({ live: [connectionOf("1")], code: 91 });
  await assert.rejects(connections.onFurther([], record, never), { code: "failed_precondition" });
  await check(connectionOf("3"), never);
  assert.deepEqual(ran, ["record -- 1"]);
});
