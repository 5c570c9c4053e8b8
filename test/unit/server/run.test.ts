import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { type World, ask, runtimeOf, start } from "./harness.ts";

const pod = aPod({ containers: [aContainer("c")] }, { name: "p", namespace: "ns", uid: "uid-1" });

async function post(world: World, path: string): Promise<[number, string]> {
  await using server = await start(world);
  const { status, body } = await ask(server, path, { method: "POST" });
  return [status, body];
}

test("run: returns all output of a command, or describes its failure", async () => {
  const asked: unknown[] = [];
  const world = (exitCode: number) => ({
    pods: [pod],
    deps: {
      runtime: runtimeOf({
        listContainers: () => Promise.resolve([{ id: "cid", createdAt: 1n }] as never),
        execSync: (...given) => {
          asked.push(given.slice(0, 3));
          if (exitCode < 0) return Promise.reject(new CodedError("unknown", "no such program"));
          return Promise.resolve({ stdout: Buffer.from("out"), stderr: Buffer.from("err"), exitCode });
        },
      }),
    },
  });
  assert.deepEqual(await post(world(0), "/run/ns/p/c?cmd=ls%20-l"), [200, "outerr"]);
  assert.deepEqual(asked, [["cid", ["ls", "-l"], 0]]);
  assert.deepEqual(await post(world(3), "/run/ns/p/uid-1/c?cmd=ls%20-l"), [500, "command 'ls -l' exited with 3: err"]);
  const unrun = await post(world(-1), "/run/ns/p/c?cmd=ls");
  assert.deepEqual(unrun, [500, "rpc error: code = Unknown desc = no such program"]);
  assert.deepEqual(await post(world(0), "/run/ns/q/c?cmd=ls"), [404, "pod does not exist"]);
  assert.deepEqual(await post({ pods: [pod] }, "/run/ns/p/c?cmd=ls"), [500, 'container not found ("c")']);
});
