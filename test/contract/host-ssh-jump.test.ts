import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { waitFor } from "../harness/wait.ts";
import { sshBench } from "./ssh-bench.ts";
import { argvOf } from "../harness/argv.ts";

const innerPort = 2222;

describe("a machine behind two jump hosts", () => {
  const { rig, hostOf, downOf, isUp } = sshBench("jump");
  const keys: Record<string, string> = {};
  let inner: ChildProcess | undefined;

  /** The sshd of the second hop, with a key of its own. */
  const startInner = async (...lines: readonly string[]) => {
    const file = `${rig().dir}/inner`;
    const config = [...lines, `Port ${innerPort}`, "ListenAddress 127.0.0.1", `HostKey ${file}-key`, "UsePAM no", ""];
    await rig().mustInside(["sh", "-c", `cat > ${file}`], { stdin: config.join("\n") });
    inner = rig().startInside(["/usr/sbin/sshd", "-D", "-e", "-f", file]);
    await waitFor("the second hop's sshd", async () => {
      const { stdout } = await rig().inside(["ss", "-Hltn", `sport = :${innerPort}`]);
      return stdout !== "";
    });
  };
  /** Ends it with its connections. */
  const killInner = async () => {
    const of = `ss -Htnp state established sport = :${innerPort} | grep -o 'pid=[0-9]*' | cut -d= -f2 | sort -u`;
    await rig().mustInside([
      "sh",
      "-c",
      `kill -9 $(pgrep -f '^(sshd: )?/usr/sbin/sshd -D -e -f ${rig().dir}/inner') $(${of}); true`,
    ]);
    if (inner && inner.exitCode === null && inner.signalCode === null) await once(inner, "exit");
  };
  const knownHosts = () => join(rig().outside, "known_hosts");
  const login = () => ({ privateKeyFile: join(rig().outside, "id") });
  const target = (second: object = {}, more: object = {}) => ({
    port: 22,
    knownHostsFile: undefined,
    hostKeyFingerprints: [keys["target"]],
    proxyJump: [
      { ...login(), host: "127.0.0.1", port: rig().config().port, user: "helper", knownHostsFile: knownHosts() },
      {
        ...login(),
        host: "127.0.0.1",
        port: innerPort,
        user: "plain",
        hostKeyFingerprints: [keys["inner"]],
        ...second,
      },
    ],
    ...more,
  });

  before(async () => {
    const { dir, mustInside } = rig();
    const fingerprint = async (file: string) => (await mustInside(["ssh-keygen", "-lf", file])).split(" ")[1] ?? "";
    await mustInside(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", `${dir}/inner-key`]);
    keys["inner"] = await fingerprint(`${dir}/inner-key.pub`);
    await mustInside(["sh", "-c", `cat > ${dir}/target.pub`], {
      stdin: readFileSync(knownHosts(), "utf8").split(" ").slice(1).join(" "),
    });
    keys["target"] = await fingerprint(`${dir}/target.pub`);
    await startInner();
  });

  test("runs commands and reads files on the target as the target's user", async () => {
    await using host = hostOf(target());
    assert.equal((await host.run(argvOf(["id", "-un"]))).stdout.trim(), "root");
    await host.fs.apply([{ kind: "write", path: `${rig().dir}/by-two`, data: "hops" }]);
    assert.equal((await host.fs.readFile(`${rig().dir}/by-two`)).toString(), "hops");
  });

  test("refuses a jump host with a different host key", async () => {
    const state = await downOf(target({ hostKeyFingerprints: [`SHA256:${"A".repeat(43)}`] }));
    assert.equal(state.why.reason, "HostKeyMismatch");
    assert.match(state.why.message, /2222/);
  });

  test("reports a jump host that refuses the login or forwarding, and a missing target, with one sentence each", async () => {
    const refused = await downOf(target({ user: "nobody-here" }));
    assert.equal(refused.why.reason, "LoginRefused");
    assert.match(refused.why.message, /^nobody-here@127\.0\.0\.1:2222 refused the login/);
    const absent = await downOf(target({}, { port: 9 }));
    assert.match(
      absent.why.message,
      /^127\.0\.0\.1:9 cannot be reached from plain@127\.0\.0\.1:2222 .*AllowTcpForwarding/,
    );
    await killInner();
    await startInner("AllowTcpForwarding no");
    const forbidden = await downOf(target());
    assert.match(forbidden.why.message, /^127\.0\.0\.1:22 cannot be reached from plain@127\.0\.0\.1:2222/);
    await killInner();
    await startInner();
  });

  test("the link goes down when the jump host is lost, and up again once it is back", async () => {
    await using host = hostOf(target());
    await host.run(argvOf(["true"]));
    await killInner();
    await waitFor("the loss", () => host.link.state().kind !== "up");
    await startInner();
    await isUp(host);
    assert.equal((await host.run(argvOf(["echo", "again"]))).stdout, "again\n");
  });
});
