import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmodSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { freePort } from "../harness/ports.ts";
import { start } from "../harness/processes.ts";
import { waitFor } from "../harness/wait.ts";
import { sshBench } from "./ssh-bench.ts";
import { argvOf } from "../harness/argv.ts";

async function isOpen(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  const open = await once(socket, "connect").then(
    () => true,
    () => false,
  );
  socket.destroy();
  return open;
}

describe("a machine behind a proxy", { timeout: 120_000 }, () => {
  const { rig, hostOf, downOf, isUp, logged } = sshBench("proxy");
  const running: ChildProcess[] = [];
  const ports: Record<string, number> = {};
  const password = "open-sesame";
  const passwordFile = (text = password) => {
    const file = join(rig().outside, `password-${text.length}`);
    writeFileSync(file, `${text}\n`, { mode: 0o600 });
    return file;
  };

  const serve = async (name: string, argv: (port: number) => readonly string[]) => {
    const port = await freePort();
    const child = start(argv(port), { stdio: "ignore" });
    running.push(child);
    ports[name] = port;
    await waitFor(name, () => isOpen(port), { everyMs: 50 });
    return child;
  };
  const tinyproxy = (name: string, ...lines: readonly string[]) =>
    serve(name, (port) => {
      const file = join(rig().outside, `${name}.conf`);
      const known = rig().config().port;
      writeFileSync(file, [`Port ${port}`, "Listen 127.0.0.1", `ConnectPort ${known}`, ...lines, ""].join("\n"));
      return ["tinyproxy", "-d", "-c", file];
    });

  before(async () => {
    await serve("socks", (port) => ["microsocks", "-i", "127.0.0.1", "-p", String(port)]);
    await serve("guarded socks", (port) => [
      "microsocks",
      "-i",
      "127.0.0.1",
      "-p",
      String(port),
      "-u",
      "me",
      "-P",
      password,
    ]);
    await tinyproxy("http");
    await tinyproxy("guarded http", `BasicAuth me ${password}`);
  });
  after(async () => {
    for (const child of running.filter(({ exitCode, signalCode }) => exitCode === null && signalCode === null)) {
      child.kill("SIGKILL");
      await once(child, "exit");
    }
  });

  const ways = [
    { name: "SOCKS", fields: () => ({ proxy: `socks5://127.0.0.1:${ports["socks"]}` }) },
    {
      name: "SOCKS with a login",
      fields: () => ({ proxy: `socks5://me@127.0.0.1:${ports["guarded socks"]}`, proxyPasswordFile: passwordFile() }),
    },
    { name: "HTTP CONNECT", fields: () => ({ proxy: `http://127.0.0.1:${ports["http"]}` }) },
    {
      name: "HTTP CONNECT with a login",
      fields: () => ({ proxy: `http://me@127.0.0.1:${ports["guarded http"]}`, proxyPasswordFile: passwordFile() }),
    },
  ];
  for (const { name, fields } of ways)
    test(`${name}: runs commands and reads files on the machine`, async () => {
      await using host = hostOf(fields());
      assert.equal((await host.run(argvOf(["echo", "there"]))).stdout, "there\n");
      const data = "x".repeat(4 * 2 ** 20);
      await host.fs.apply([{ kind: "write", path: `${rig().dir}/by-proxy`, data }]);
      assert.equal((await host.fs.readFile(`${rig().dir}/by-proxy`)).length, data.length);
    });

  test("reaches the first jump host through the proxy", async () => {
    const { port, user, login, trust } = rig().config();
    assert.ok(login.kind === "key" && trust.kind === "knownHosts");
    const hop = { host: "127.0.0.1", port, user, privateKeyFile: login.privateKeyFile, knownHostsFile: trust.file };
    const inner = (
      await rig().mustInside(["sh", "-c", "ss -Hltnp | grep -m1 sshd | awk '{print $4}' | sed 's/.*://'"])
    ).trim();
    const key = (await rig().mustInside(["sh", "-c", `ssh-keygen -lf $(dirname ${rig().dir})/keys/ed25519.pub`])).split(
      " ",
    )[1];
    await using host = hostOf({
      proxy: `socks5://127.0.0.1:${ports["socks"]}`,
      proxyJump: [hop],
      port: Number(inner),
      knownHostsFile: undefined,
      hostKeyFingerprints: [key],
    });
    assert.equal((await host.run(argvOf(["echo", "there"]))).stdout, "there\n");
  });

  test("reports a proxy that is missing or refuses, in one sentence each, without passwords in the log", async () => {
    const of = async (fields: object) => (await downOf({ ...fields })).why.message;
    assert.match(
      await of({ proxy: `socks5://127.0.0.1:${await freePort()}` }),
      /cannot be reached through the proxy socks5:.*ECONNREFUSED/,
    );
    const wrong = { proxyPasswordFile: passwordFile("wrong") };
    assert.match(
      await of({ proxy: `socks5://me@127.0.0.1:${ports["guarded socks"]}`, ...wrong }),
      /through the proxy socks5:.*[Aa]uthentication failed/,
    );
    assert.match(
      await of({ proxy: `http://me@127.0.0.1:${ports["guarded http"]}`, ...wrong }),
      /through the proxy http:.*it answered 40[17]/,
    );
    assert.match(
      await of({ proxy: `http://127.0.0.1:${ports["http"]}`, port: 1, hostKeyFingerprints: undefined }),
      /^127\.0\.0\.1:1 cannot be reached through the proxy http:.*it answered 403/,
    );
    assert.match(
      await of({ proxy: `http://me@127.0.0.1:${ports["http"]}`, proxyPasswordFile: "/nowhere" }),
      /proxyPasswordFile cannot be read/,
    );
    const open = passwordFile("for all");
    chmodSync(open, 0o644);
    assert.match(
      await of({ proxy: `http://me@127.0.0.1:${ports["http"]}`, proxyPasswordFile: open }),
      /proxyPasswordFile: others can read/,
    );
    assert.ok(!logged().includes(password) && !logged().includes("wrong"));
  });

  test("the link goes down when the proxy is lost, and up again once it is back", async () => {
    const child = await tinyproxy("brief");
    await using host = hostOf({ proxy: `http://127.0.0.1:${ports["brief"]}` });
    await host.run(argvOf(["true"]));
    child.kill("SIGKILL");
    await waitFor("the loss", () => host.link.state().kind !== "up");
    const again = start(["tinyproxy", "-d", "-c", join(rig().outside, "brief.conf")], { stdio: "ignore" });
    running.push(again);
    await isUp(host);
    assert.equal((await host.run(argvOf(["echo", "again"]))).stdout, "again\n");
  });
});
