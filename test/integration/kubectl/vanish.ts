import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { gained } from "../../harness/holdings.ts";
import type { Lab } from "../../harness/lab.ts";
import { networkArgv } from "../../harness/namespaces.ts";
import { particulars } from "../../harness/particulars.ts";
import { shell } from "../../harness/pods.ts";
import { start } from "../../harness/processes.ts";
import { echoServer, forward } from "./port-forward.ts";
import { transports } from "./transports.ts";

/** Clients that are killed in the middle of a stream. */
export function vanishTests(lab: () => Lab): void {
  describe("vanishing clients", () => {
    before(async () => {
      const { pods } = lab();
      await pods.create("quiet", {});
      await pods.create("chatty", {
        containers: [shell("yes $(head -c 4000 /dev/zero | tr '\\0' x) | head -c 67108864; exec sleep infinity")],
      });
      await pods.create("served", { containers: [echoServer] });
      for (const name of ["quiet", "chatty", "served"]) await pods.ready(name);
    });

    for (const { name: transport, env } of transports) {
      test(`clients that vanish leave nothing behind after a few seconds, over ${transport}`, async () => {
        const { agent, cluster } = lab();
        const { held, holdings, ownLines } = particulars[cluster.provider];
        await cluster.mustKubectl(["logs", "quiet"]);
        // What comes and goes may go while it is looked at.
        const before = await cluster.waitFor("a look at what is held", () => holdings(cluster, agent));
        const explain = (): string => gained(before, holdings(cluster, agent)).join("\n");
        const clients: ChildProcess[] = [];
        const begin = (...args: string[]): void =>
          void clients.push(cluster.startKubectl(args, { env, stdio: ["pipe", "pipe", "ignore"] }));
        try {
          begin("exec", "-i", "quiet", "--", "cat");
          begin("attach", "quiet");
          begin("logs", "--follow", "quiet");
          // Nobody reads these: they stand in the middle of their stream.
          begin("exec", "quiet", "--", "cat", "/dev/zero");
          begin("logs", "--follow", "chatty");
          const tunnel = await forward(lab(), "served", env);
          clients.push(tunnel.child);
          const zeros = join(cluster.layout.dir, `zeros-${transport}`);
          clients.push(
            start(
              networkArgv(cluster.layout, [
                cluster.tools.path("curl"),
                "--silent",
                "--limit-rate",
                "10K",
                "--output",
                zeros,
                `http://127.0.0.1:${tunnel.port}/zeros`,
              ]),
              { stdio: "ignore" },
            ),
          );
          await cluster.waitFor("a download to be under way", () => existsSync(zeros) && statSync(zeros).size > 0);
          await cluster.waitFor(
            "all streams to stand",
            () => {
              const now = holdings(cluster, agent);
              const many = (lines: Iterable<string>, what: RegExp): number =>
                [...lines].filter((line) => what.test(line)).length;
              // One from the API server for each, to the runtime for all but logs. The API server may use one again that stood before.
              return (
                many(now, /:10250 -> /) >= 6 &&
                many(gained(before, now), held.stream) >= 4 &&
                many(gained(before, now), held.log) === 2
              );
            },
            { explain },
          );
        } finally {
          for (const client of clients) client.kill("SIGKILL");
        }
        await cluster.waitFor(
          "nothing to be held for them",
          () => {
            const more = gained(before, holdings(cluster, agent));
            return more.length <= ownLines && more.every((line) => held.stream.test(line));
          },
          { explain },
        );
        assert.ok(agent.isRunning());
      });
    }
  });
}
