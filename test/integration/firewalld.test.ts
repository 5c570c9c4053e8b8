import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { localHost } from "../../providers/local/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import type { RunOptions } from "../../src/seams/host.ts";
import { activeFirewalls, describeFirewall } from "../../src/service-tunnel/firewall-remedy.ts";
import { never } from "../fakes/signals.ts";
import { argvOf } from "../harness/argv.ts";
import { must, run } from "../harness/processes.ts";
import { Hopeless, waitFor } from "../harness/wait.ts";
import { cached, installDebian, unread } from "../machines/debian.ts";

const namespace = `graftlet-firewalld-${process.pid}`;
const [pod, machine] = ["10.99.8.2", "10.99.8.1"] as const;
const recipe = { suite: "bookworm", packages: ["firewalld", "iproute2", "netbase"], without: unread };

/** A Debian with firewalld in the namespaces of a machine, above files that others share. @param dir an empty directory. */
const machineWith = (files: string, dir: string) => `
  mount -t tmpfs tmpfs ${dir}
  mkdir ${dir}/upper ${dir}/work ${dir}/root
  mount -t overlay overlay -o lowerdir=${files},upperdir=${dir}/upper,workdir=${dir}/work ${dir}/root
  mount -t proc proc ${dir}/root/proc
  mount --rbind /dev ${dir}/root/dev
  mount -t tmpfs tmpfs ${dir}/root/run
  mkdir ${dir}/root/run/dbus
  socat TCP-LISTEN:1022,fork,reuseaddr SYSTEM:'echo let in' &
  chroot ${dir}/root dbus-daemon --system --fork
  exec chroot ${dir}/root firewalld --nofork --nopid >&2`;

describe("firewalld on a machine with pods", { timeout: 600_000 }, () => {
  const dir = mkdtempSync(join(tmpdir(), "graftlet-firewalld-"));
  let holder: ChildProcess | undefined;
  let enter: readonly string[] = [];

  before(async () => {
    const files = await cached({
      kind: "firewalld",
      recipe,
      waiting: "making a Debian with firewalld: once per machine, about a minute",
      say: (line) => console.error(line),
      make: (folder) => installDebian(recipe, folder),
    });
    await must([
      "sh",
      "-ec",
      `ip netns add ${namespace}; ip netns add ${namespace}-pod
       ip -n ${namespace} link set lo up
       ip -n ${namespace} link add pods type bridge
       ip -n ${namespace} addr add ${machine}/24 dev pods
       ip -n ${namespace} link set pods up
       ip -n ${namespace} link add pod type veth peer name eth0 netns ${namespace}-pod
       ip -n ${namespace} link set pod master pods up
       ip -n ${namespace}-pod addr add ${pod}/24 dev eth0
       ip -n ${namespace}-pod link set eth0 up`,
    ]);
    const own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", machineWith(files, dir)];
    holder = spawn("setpriv", ["--pdeathsig", "KILL", "ip", "netns", "exec", namespace, ...own], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    let said = "";
    holder.stderr?.on("data", (chunk: Buffer) => (said = (said + chunk.toString()).slice(-4000)));
    await waitFor(
      "firewalld",
      async () => {
        if (holder?.exitCode !== null) throw new Hopeless(`the machine ended: ${said}`);
        const init = Number.parseInt(readFileSync(`/proc/${holder.pid}/task/${holder.pid}/children`, "utf8"), 10);
        enter = ["nsenter", "--target", String(init), "--net", "--mount", "--pid", "chroot", join(dir, "root")];
        return (await run([...enter, "firewall-cmd", "--state"])).stdout.trim() === "running";
      },
      { timeoutMs: 60_000 },
    );
  });
  after(async () => {
    if (holder?.kill("SIGKILL")) await once(holder, "exit");
    for (const name of [namespace, `${namespace}-pod`]) await run(["ip", "netns", "delete", name]);
    rmSync(dir, { recursive: true });
  });

  test("is recognized, and the command of the message lets pods in, also after a reload", async () => {
    const local = localHost({ clock: systemClock() });
    const host = {
      run: (argv: readonly string[], options?: RunOptions) => local.run(argvOf([...enter, ...argv]), options),
      fs: { readFile: async (path: string) => Buffer.from(await must([...enter, "cat", path])) },
    };
    const connect = async () => {
      const socat = ["socat", "-u", `TCP:${machine}:1022,connect-timeout=3`, "-"];
      return (await run(["ip", "netns", "exec", `${namespace}-pod`, ...socat])).stdout;
    };
    assert.deepEqual(await activeFirewalls(host, never), ["firewalld"]);
    assert.equal(await connect(), "");
    const message = await describeFirewall(host, pod, ["tcp"], never);
    const [, command = ""] =
      /^firewalld on the target blocks TCP from pods .* run: (firewall-cmd .+)$/.exec(message) ?? [];
    await must([...enter, "sh", "-ec", command]);
    assert.equal(await connect(), "let in\n");
    await must([...enter, "firewall-cmd", "--complete-reload"]);
    assert.equal(await connect(), "let in\n");
  });
});
