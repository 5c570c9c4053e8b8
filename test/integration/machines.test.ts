import assert from "node:assert/strict";
import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { sshTargetOn } from "../contract/ssh-runtime.ts";
import { clusterName } from "../harness/cluster.ts";
import { cgroupHierarchies } from "../harness/cgroups.ts";
import { isAlive, start } from "../harness/processes.ts";
import { layoutOf } from "../harness/state.ts";
import { traces } from "../harness/traces.ts";
import { waitFor } from "../harness/wait.ts";
import { type SystemdMachine, systemdMachine } from "../machines/systemd-machine.ts";
import { argvOf } from "../harness/argv.ts";

let machine: SystemdMachine;
before(async () => {
  machine = await systemdMachine({ name: "machines", runtime: "containerd" });
});
after(() => machine?.[Symbol.asyncDispose]());

/** The files of that name in the cgroups of a path of the machine, whichever hierarchies have them. */
const cgroupFiles = (path: string, file: string): string[] =>
  cgroupHierarchies()
    .map((hierarchy) => join(hierarchy, machine.layout.cgroup, path, file))
    .filter(existsSync);

describe("a machine with its own systemd", () => {
  test("starts all of its units, including containerd and sshd", async () => {
    assert.equal(await machine.must(["systemctl", "list-units", "--failed", "--plain", "--no-legend"]), "");
    assert.equal(await machine.must(["systemctl", "is-system-running"]), "running\n");
    for (const unit of ["containerd", "ssh", "dbus", "systemd-logind", "systemd-journald"])
      assert.equal(await machine.must(["systemctl", "is-active", unit]), "active\n", unit);
    assert.equal(await machine.must(["ps", "-o", "comm=", "-p", "1"]), "systemd\n");
    assert.match(await machine.must(["journalctl", "--boot", "--unit=ssh"]), /Started ssh\.service/);
  });

  test("a slice's limit is enforced by a cgroup of this machine's kernel", async () => {
    const asked = ["--slice=x.slice", "--unit=sleeper", "-p", "MemoryMax=64M", "-p", "CPUQuota=20%"];
    await machine.must(["systemd-run", ...asked, "sleep", "infinity"]);
    const unit = "x.slice/sleeper.service";
    const read = (file: string) => cgroupFiles(unit, file).map((path) => readFileSync(path, "utf8").trim());
    assert.deepEqual([...read("memory.limit_in_bytes"), ...read("memory.max")], [String(64 << 20)]);
    assert.match([...read("cpu.cfs_quota_us"), ...read("cpu.max")].join(), /^20000\b/);
    await machine.must(["systemctl", "set-property", "--runtime", "sleeper.service", "MemoryMax=32M"]);
    assert.deepEqual([...read("memory.limit_in_bytes"), ...read("memory.max")], [String(32 << 20)]);
    await machine.must(["systemctl", "stop", "sleeper"]);
    await waitFor("the service's cgroups to go", () => cgroupFiles(unit, "cgroup.procs").length === 0);
  });

  test("runs commands over SSH, and answers D-Bus on its socket", async () => {
    await using target = await sshTargetOn(machine, "ssh-systemd");
    const { stdout } = await target.host.run(argvOf(["systemctl", "is-active", "containerd"]));
    assert.equal(stdout, "active\n");
    const bus = await target.host.dial({ unix: "/run/dbus/system_bus_socket" });
    // https://dbus.freedesktop.org/doc/dbus-specification.html#auth-mechanisms-external
    bus.write(`\0AUTH EXTERNAL ${Buffer.from("0").toString("hex")}\r\n`);
    const [word] = (await bus.take(1).toArray()) as [Buffer];
    assert.match(word.toString(), /^OK [0-9a-f]{32}\r\n$/);
    bus.destroy();
    assert.equal((await target.runtime.version(AbortSignal.timeout(10_000))).runtimeName, "containerd");
  });

  test("boots again with its disk when it is restarted", async () => {
    const before = machine.systemd();
    const bootIdThere = () => machine.must(["cat", "/proc/sys/kernel/random/boot_id"]);
    const old = await bootIdThere();
    await machine.must(["sh", "-c", "echo kept > /root/kept; echo gone > /run/gone; systemd-run sleep infinity"]);
    const bootId = await machine.restart();
    assert.notEqual(bootId, old.trim());
    assert.equal(await bootIdThere(), `${bootId}\n`);
    assert.ok(!isAlive(before));
    assert.equal(await machine.must(["cat", "/root/kept"]), "kept\n");
    assert.equal((await machine.run(["test", "-e", "/run/gone"])).code, 1);
    assert.doesNotMatch(await machine.must(["systemctl", "list-units", "run-*.service"]), /sleep/);
    assert.ok(statSync(join(machine.root(), "run/systemd/system")).isDirectory());
    await using target = await sshTargetOn(machine, "ssh-systemd");
    assert.equal((await target.host.run(argvOf(["cat", "/root/kept"]))).stdout, "kept\n");
  });

  test("leaves nothing behind after disposal, or after its test is killed", async () => {
    await machine[Symbol.asyncDispose]();
    assert.deepEqual(traces(machine.layout), []);
    const layout = layoutOf(clusterName("machines-b", "cri"));
    const script = `import { systemdMachine } from ${JSON.stringify(join(import.meta.dirname, "../machines/systemd-machine.ts"))};
      await systemdMachine({ name: "machines-b", runtime: "containerd" });
      console.log("up");
      setInterval(() => {}, 1000);`;
    const owner = start([process.execPath, "--input-type=module", "--eval", script], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let said = "";
    owner.stdout?.on("data", (chunk: Buffer) => (said += chunk.toString()));
    try {
      await waitFor("the second machine", () => said.includes("up"), { timeoutMs: 120_000 });
      assert.notDeepEqual(traces(layout), []);
    } finally {
      owner.kill("SIGKILL");
    }
    await waitFor("nothing to be left of the second machine", () => traces(layout).length === 0, {
      timeoutMs: 60_000,
      explain: () => traces(layout).join("\n"),
    });
  });
});
