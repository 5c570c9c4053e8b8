import assert from "node:assert/strict";
import { test } from "node:test";
import { type Protocol, findRuntime, knownSockets } from "../../../../../providers/ssh/runtime/find.ts";
import { CodedError } from "../../../../../src/lib/errors.ts";
import { createLogger } from "../../../../../src/lib/log.ts";
import type { Address } from "../../../../../src/seams/host.ts";
import { fakeClock } from "../../../../fakes/clock.ts";
import { fakeHost } from "../../../../fakes/host.ts";
import { fakeRuntime } from "../../../../fakes/runtime.ts";

const never = new AbortController().signal;
const containerd = "/run/containerd/containerd.sock";
const docker = "/var/run/docker.sock";

/** A target with a dead socket in containerd's place, and a Docker Engine unless `engine` is false. */
async function target({ engine = true, reached = () => Promise.resolve() } = {}) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  for (const path of ["/run/containerd", "/var/run"])
    await host.fs.apply([{ do: "mkdir", path, mode: 0o755, parents: true }]);
  for (const socket of engine ? [containerd, docker] : [containerd]) host.files.put(socket, { kind: "socket" });
  if (engine)
    await host.listen(
      { unix: docker },
      (connection) => void connection.once("data", () => connection.end("HTTP/1.1 200")),
    );
  const dial = async (to: Address, signal?: AbortSignal) => {
    if ("unix" in to && to.unix === containerd) throw new CodedError("unavailable", `${containerd}: refused`);
    return host.dial(to, signal);
  };
  const made: [string, Protocol][] = [];
  const make = async (socket: string, protocol: Protocol) => {
    made.push([socket, protocol]);
    return fakeRuntime({ clock });
  };
  const find = (wanted: Parameters<typeof findRuntime>[1]) =>
    findRuntime(
      { host: { ...host, dial }, make, reach: reached, log: createLogger(0, { write: () => undefined }) },
      wanted,
      never,
    );
  return { find, made };
}

test("a dead socket is skipped for one with a runtime", async () => {
  const { find, made } = await target();
  assert.equal((await find("auto")).socket, docker);
  assert.deepEqual(made, [[docker, "docker"]]);
});

test("when no runtime answers, the error lists the sockets tried, with reasons", async () => {
  const { find } = await target({ engine: false });
  await assert.rejects(find("auto"), (error: CodedError) => {
    assert.equal(error.code, "failed_precondition");
    for (const socket of knownSockets)
      assert.ok(
        error.message.includes(`${socket} (${socket === containerd ? `${containerd}: refused` : "does not exist"})`),
      );
    return true;
  });
  await assert.rejects(find({ socket: containerd }), {
    code: "failed_precondition",
    message: /tried \/run\/containerd\/containerd\.sock \(.*refused\): start containerd/,
  });
});

test("an unreachable target gives no other error", async () => {
  const away = new CodedError("unavailable", "root@box is out of reach");
  const { find } = await target({ engine: false, reached: () => Promise.reject(away) });
  await assert.rejects(find("auto"), away);
});
