import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import type { Duplex } from "node:stream";
import { after, before, describe, test } from "node:test";
import { type ConnectToPort, createPortRelay } from "../../providers/docker/port-forward/relay.ts";
import { NamespaceMode, RunPodSandboxRequest } from "../../src/gen/cri.ts";
import { CodedError } from "../../src/lib/errors.ts";
import type { Logger } from "../../src/lib/log.ts";
import type { Address, Host } from "../../src/seams/host.ts";
import { maxForwarded } from "../../src/streams/forward-slots.ts";
import { waitFor } from "../harness/wait.ts";
import { type DockerUnderTest, dockerOn } from "./docker-rig-parts.ts";
import { type DockerRig, startDockerRig } from "./runtime-docker.ts";
import { type Pods, patience, podsOf } from "./runtime-pods.ts";
import { sshTargetOn } from "./ssh-runtime.ts";
import { argvOf } from "../harness/argv.ts";

/** Ports of the pod's loopback and what answers there: 9001 (IPv4) the checksum of what it is sent, after the sender's end;
 *  9002 (IPv6) the same; 9003 ends its own half first and tells at 9004 how much came after that; 9005 resets. */
const server = `
const net = require("node:net"), { createHash } = require("node:crypto");
let counted = 0;
const sum = (socket) => { const hash = createHash("md5"); socket.on("data", (block) => hash.update(block)).on("end", () => socket.end(hash.digest("hex"))); };
const first = (socket) => { socket.end("hello"); counted = 0; socket.on("data", (block) => counted += block.length); };
const listen = (port, host, serve) => net.createServer({ allowHalfOpen: true }, (socket) => { socket.on("error", () => {}); serve(socket); }).listen(port, host);
listen(9001, "127.0.0.1", sum); listen(9002, "::1", sum); listen(9003, "127.0.0.1", first);
listen(9004, "127.0.0.1", (socket) => socket.end(String(counted)));
listen(9005, "127.0.0.1", (socket) => socket.resetAndDestroy()).on("listening", () => console.log("listening"));
`;

forwardContract("here", async () => {
  const rig = await startDockerRig("docker-forward");
  return { rig, [Symbol.asyncDispose]: () => rig[Symbol.asyncDispose]() };
});

forwardContract("over SSH", async () => {
  const rig = await startDockerRig("docker-forward", "ssh-docker");
  const target = await sshTargetOn(rig, "ssh-docker");
  return {
    rig: { ...rig, host: target.host },
    async [Symbol.asyncDispose]() {
      await target[Symbol.asyncDispose]();
      await rig[Symbol.asyncDispose]();
    },
  };
});

interface RigUnderTest extends AsyncDisposable {
  readonly rig: DockerRig;
}

function forwardContract(where: string, make: () => Promise<RigUnderTest>): void {
  describe(`port-forward of the Docker provider on a real daemon ${where}`, { timeout: 300_000 }, () => {
    let made: RigUnderTest;
    let rig: DockerRig;
    let docker: DockerUnderTest;
    let pods: Pods;
    let sandboxId: string;
    let serving: ChildProcess;
    before(async () => {
      made = await make();
      ({ rig } = made);
      docker = dockerOn(rig, "forward");
      pods = podsOf(docker);
      ({ sandboxId } = await pods.runOne(["sleep", "3600"]));
      serving = await serveIn(sandboxId);
    });
    after(async () => {
      serving.kill();
      await pods[Symbol.asyncDispose]();
      await docker[Symbol.asyncDispose]();
      await made[Symbol.asyncDispose]();
    });

    async function serveIn(id: string): Promise<ChildProcess> {
      const { stdout: pid } = await rig.docker(["inspect", "--format", "{{.State.Pid}}", id]);
      // Docker leaves a pod's loopback without its IPv6 address.
      const begin = 'echo 0 > /proc/sys/net/ipv6/conf/lo/disable_ipv6; exec "$@"';
      const argv = ["--target", pid.trim(), "--net", "sh", "-c", begin, "sh", process.execPath, "-e", server];
      const child = spawn("nsenter", argv, { stdio: ["ignore", "pipe", "inherit"] });
      await Promise.race([
        once(child.stdout, "data"),
        once(child, "exit").then(() => Promise.reject(new Error("the server in the pod has ended"))),
      ]);
      return child;
    }

    /** Connections on a target that has this program only. */
    function relayBy(program: string, log: Partial<Logger> = {}, dialTcp?: Host["dial"]): ConnectToPort {
      const { parts } = docker;
      const { forUsers = parts.host } = parts.host;
      const host: Host = {
        ...parts.host,
        ...(dialTcp && { dial: dialTcp, forUsers: { ...forUsers, dial: dialTcp } }),
        run: async (argv, options) => {
          if (!argv.includes("--net")) return parts.host.run(argv, options);
          return { code: 0, stdout: `${program}\n`, stderr: "", truncated: false };
        },
      };
      return createPortRelay({ ...parts, host, log: { ...parts.log, ...log } });
    }

    for (const program of ["socat", "perl", "python3"]) {
      describe(`port-forward through ${program}`, () => {
        test("carries 16 MiB over each of several concurrent connections, and half-closes", async () => {
          const connect = relayBy(program);
          const content = randomBytes(16 << 20);
          const expected = createHash("md5").update(content).digest("hex");
          const answers = await Promise.all(
            [9001, 9001, 9002].map(async (port) => {
              const connection = await connect(sandboxId, port, patience());
              connection.end(content);
              return await answerOf(connection);
            }),
          );
          assert.deepEqual(answers, [expected, expected, expected]);
        });

        test("reports that nothing listens on the port", async () => {
          await assert.rejects(relayBy(program)(sandboxId, 9999, patience()), {
            code: "unavailable",
            message: /^failed to connect to localhost:9999 .*IPv4: connection refused, IPv6: connection refused$/,
          });
        });

        test("leaves no process behind when the client disconnects", async () => {
          const connection = await relayBy(program)(sandboxId, 9001, patience());
          connection.write("half a word");
          await waitFor("the relay to run", async () => (await relays()) > 0);
          connection.destroy();
          await waitFor("the relay to be gone", async () => (await relays()) === 0);
        });

        test("continues to send the client's data after the server has closed its side", async () => {
          const connect = relayBy(program);
          const connection = await connect(sandboxId, 9003, patience());
          assert.equal(await readAll(connection), "hello");
          connection.end(Buffer.alloc(1 << 20));
          await waitFor("all to have come", async () => {
            return (await answerOf(await connect(sandboxId, 9004, patience()))) === String(1 << 20);
          });
        });
      });
    }

    // Over SSH so many relays would wait for sessions of the link.
    if (where === "here") {
      test("limits the connections to a pod, and accepts a new one once one has closed", async () => {
        const connect = relayBy("perl");
        const standing = await Promise.all(
          Array.from({ length: maxForwarded.toPod }, () => connect(sandboxId, 9001, patience())),
        );
        await assert.rejects(connect(sandboxId, 9001, patience()), { code: "resource_exhausted" });
        const [first, ...others] = standing;
        first?.destroy();
        await waitFor("a place", async () => {
          const next = await connect(sandboxId, 9001, patience()).catch(() => undefined);
          if (next) others.push(next);
          return next !== undefined;
        });
        for (const connection of others) connection.destroy();
        await waitFor("the relays to be gone", async () => (await relays()) === 0);
      });
    }

    /** Relays under way for port 9001. */
    async function relays(): Promise<number> {
      const { stdout } = await docker.parts.host.run(argvOf(["pgrep", "-fc", "127.0.0.1(:| )9001$"]));
      return Number(stdout);
    }

    test("finds a relay program on the target by itself", async () => {
      const connection = await createPortRelay(docker.parts)(sandboxId, 9004, patience());
      assert.match(await answerOf(connection), /^\d+$/);
    });

    test("dials the pod's address if the target has no relay program, and reports the limitation", async () => {
      const said: string[] = [];
      const dialled: Address[] = [];
      const refuse = (to: Address) => {
        dialled.push(to);
        return Promise.reject(new CodedError("unavailable", "nobody there"));
      };
      const connect = relayBy("", { warn: (_fields, message) => said.push(message) }, refuse);
      for (let round = 0; round < 2; round++)
        await assert.rejects(connect(sandboxId, 9001, patience()), { code: "unavailable" });
      const { status } = await docker.runtime.podSandboxStatus(sandboxId, patience());
      assert.deepEqual(dialled[0], { host: status?.network?.ip, port: 9001 });
      assert.equal(said.length, 1);
      assert.match(String(said[0]), /127\.0\.0\.1 are unreachable/);
    });

    test("reaches the host's loopback for a pod on the host network", async () => {
      const config = pods.config();
      const { NODE, POD } = NamespaceMode;
      const security = { namespaceOptions: { network: NODE, pid: POD, ipc: POD } };
      const onHost = await pods.run({
        ...config,
        linux: RunPodSandboxRequest.fromPartial({ config: { linux: { securityContext: security } } }).config?.linux,
      });
      const child = await serveIn(onHost);
      try {
        const connection = await createPortRelay(docker.parts)(onHost, 9004, patience());
        assert.equal(await answerOf(connection), "0");
      } finally {
        child.kill();
      }
    });

    test("refuses a stopped sandbox and a sandbox of another node", async () => {
      const stopped = await pods.run(pods.config());
      await docker.runtime.stopPodSandbox(stopped, patience());
      const connect = createPortRelay(docker.parts);
      await assert.rejects(connect(stopped, 9001, patience()), { code: "failed_precondition" });
      await using other = dockerOn(rig, "other");
      await assert.rejects(createPortRelay(other.parts)(sandboxId, 9001, patience()), { code: "not_found" });
    });
  });
}

async function answerOf(connection: Duplex): Promise<string> {
  const answer = await readAll(connection);
  connection.destroy();
  return answer;
}

async function readAll(connection: Duplex): Promise<string> {
  const parts: Buffer[] = [];
  connection.on("data", (part: Buffer) => parts.push(part));
  await once(connection, "end");
  return Buffer.concat(parts).toString();
}
