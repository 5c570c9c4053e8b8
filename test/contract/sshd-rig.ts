import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type SshConfig, readSshConfig } from "../../providers/ssh/config.ts";
import { type Finished, type RunOptions, must, run, start } from "../harness/processes.ts";
import { Hopeless, waitFor } from "../harness/wait.ts";
import { openWayIn } from "./way-in.ts";

/** A machine that is reached through its sshd only: network, mount, PID and UTS namespaces of its own, and a folder that nobody
 *  outside sees. Removed when disposed of, and when this process ends. */
export interface SshdRig extends AsyncDisposable {
  /** An absolute folder inside, without links in its path; anybody may make files there. */
  readonly dir: string;
  /** A folder of this machine's for the test's own files. */
  readonly outside: string;
  /** How root logs in. */
  readonly login: {
    readonly host: string;
    readonly port: number;
    readonly user: string;
    readonly privateKeyFile: string;
    readonly knownHostsFile: string;
  };
  /** A command line that runs one of this machine's on the network inside. */
  besideArgv(argv: readonly string[]): readonly [string, ...string[]];
  /** Configuration of the ssh provider for one of its users. */
  config(fields?: Readonly<Record<string, unknown>>): SshConfig;
  /** Runs a command inside as root, without SSH. */
  inside(argv: readonly string[], options?: RunOptions): Promise<Finished>;
  mustInside(argv: readonly string[], options?: RunOptions): Promise<string>;
  /** Starts a command inside as root, without SSH. */
  startInside(argv: readonly string[]): ChildProcess;
  /** Starts sshd with lines put before its configuration; one that runs is ended first, its connections are not.
   *  @param options `socketActivated`: systemd listens, and starts an sshd for each connection. */
  startSshd(lines?: readonly string[], options?: { readonly socketActivated?: boolean }): Promise<void>;
  /** Ends sshd, and starts dropbear in its place, with the same host key. */
  startDropbear(): Promise<void>;
  /** Ends sshd and every connection of it. */
  killSshd(): Promise<void>;
  /** From now on everything takes so long between us and the machine, each way. */
  delay(ms: number): void;
}

/** What stands in for programs of the machine. */
export interface SshdRigOptions {
  /** `busybox`: for /bin/sh and for all it knows, and nothing tells of file changes; `bash`: for /bin/sh. */
  readonly programs?: "debian" | "busybox" | "bash";
}

/** Users there: root; `helper`, with sudo for everything and no password; `plain`, with nothing. */
const users = ["helper", "plain"];
const sshPort = 22;

function setUp(dir: string, { programs = "debian" }: SshdRigOptions): string {
  const replacements = {
    debian: ":",
    bash: "mount --bind /bin/bash /bin/sh",
    busybox: `mount --bind /usr/bin/busybox /bin/sh; /usr/bin/busybox --install -s ${dir}/bin; rm /usr/bin/inotifywait`,
  };
  return `
    ip link set lo up
    hostname graftlet-target
    mkdir -p ${dir}
    mount -t tmpfs -o mode=0755 tmpfs ${dir}
    mkdir -p ${dir}/keys ${dir}/bin ${dir}/files
    chmod 1777 ${dir}/files
    for at in /etc /usr/bin; do
      mkdir -p ${dir}/layers$at/upper ${dir}/layers$at/work
      mount -t overlay overlay -o lowerdir=$at,upperdir=${dir}/layers$at/upper,workdir=${dir}/layers$at/work $at
    done
    for at in /run /home /root /var/lib /var/log; do mount -t tmpfs -o mode=0755 tmpfs $at; done
    mkdir -p /run/sshd
    echo graftlet-target > /etc/hostname
    for user in ${users.join(" ")}; do useradd --create-home --shell /bin/sh $user; usermod -p '*' $user; done
    echo 'helper ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/helper
    chmod 440 /etc/sudoers.d/helper
    for type in ed25519 rsa; do ssh-keygen -q -t $type -N '' -f ${dir}/keys/$type; done
    ${replacements[programs]}
    chmod 700 /root
    echo ready
    sleep infinity & wait`;
}

/** Makes the machine and starts its sshd. */
export async function startSshdRig(name: string, options: SshdRigOptions = {}): Promise<SshdRig> {
  const outside = mkdtempSync(join(tmpdir(), `graftlet-${name}-`));
  const dir = join(outside, "target");
  mkdirSync(dir);
  await must(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", join(outside, "id")]);
  const holder = spawn(
    "setpriv",
    [
      ..."--pdeathsig KILL unshare --net --mount --pid --uts --fork --kill-child --mount-proc sh -ec".split(" "),
      setUp(dir, options),
    ],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  await using undo = new AsyncDisposableStack();
  undo.defer(async () => {
    const ended = new Promise((resolve) => holder.once("exit", resolve));
    if (holder.kill("SIGKILL")) await ended;
    rmSync(outside, { recursive: true });
  });
  let said = "";
  holder.stdout.on("data", (chunk: Buffer) => (said += chunk.toString()));
  holder.stderr.on("data", (chunk: Buffer) => (said += chunk.toString()));
  const init = await waitFor("the machine's namespaces", () => initOf(holder, said), {
    timeoutMs: 30_000,
    everyMs: 20,
  });
  const into = ["nsenter", "--target", String(init), "--net", "--mount", "--pid", "--uts"];
  const inside = (argv: readonly string[], options?: RunOptions) => run([...into, ...argv], options);
  const mustInside = (argv: readonly string[], options?: RunOptions) => must([...into, ...argv], options);
  const publicKey = readFileSync(join(outside, "id.pub"), "utf8");
  for (const user of ["root", ...users]) {
    const home = `~${user}/.ssh`;
    const keep = `mkdir -p ${home} && cat > ${home}/authorized_keys && chown -R ${user} ${home}`;
    await mustInside(["sh", "-c", keep], { stdin: publicKey });
  }
  const hostKey = (await mustInside(["cat", `${dir}/keys/ed25519.pub`])).trim().split(" ").slice(0, 2).join(" ");
  const besideArgv = (argv: readonly string[]): [string, ...string[]] => [
    "nsenter",
    "--target",
    String(init),
    "--net",
    ...argv,
  ];
  const way = await openWayIn(besideArgv(["socat", "-", `TCP:127.0.0.1:${sshPort},nodelay`]));
  undo.defer(() => way.close());
  writeFileSync(join(outside, "known_hosts"), `[127.0.0.1]:${way.port} ${hostKey}\n`);
  const sshd: { daemon?: ChildProcess } = {};
  const isListening = async () => (await inside(["sh", "-c", `ss -Hltn sport = :${sshPort} | grep -q .`])).code === 0;
  const killSshd = async () => {
    delete sshd.daemon;
    await inside(["pkill", "-KILL", "^sshd"]);
    await waitFor("the end of sshd", async () => (await inside(["pgrep", "^sshd"])).code !== 0, { everyMs: 20 });
  };
  const startDaemon = async (argv: readonly string[]) => {
    const daemon = spawn(into[0] ?? "", [...into.slice(1), ...argv], { stdio: ["ignore", "ignore", "pipe"] });
    let log = "";
    daemon.stderr.on("data", (chunk: Buffer) => (log = (log + chunk.toString()).slice(-4000)));
    sshd.daemon = daemon;
    await waitFor(
      "the SSH server to listen",
      async () => {
        if (daemon.exitCode !== null) throw new Hopeless(`the SSH server ended: ${log}`);
        return isListening();
      },
      { timeoutMs: 30_000, everyMs: 30 },
    );
  };
  // Since OpenSSH 9.8 refused logins shut out the address that they come from, which all tests share.
  const penaltyOff = "PerSourcePenalties=no";
  const asked = ["/usr/sbin/sshd", "-t", "-f", "/dev/null", "-h", `${dir}/keys/ed25519`, "-o", penaltyOff];
  const lenient = (await inside(asked)).code === 0 ? [penaltyOff.replace("=", " ")] : [];
  const login = {
    host: "127.0.0.1",
    port: way.port,
    user: "root",
    privateKeyFile: join(outside, "id"),
    knownHostsFile: join(outside, "known_hosts"),
  };
  const owned = new AsyncDisposableStack();
  const rig: SshdRig = {
    dir: join(dir, "files"),
    outside,
    inside,
    mustInside,
    startInside: (argv) => start([...into, ...argv]),
    killSshd,
    delay: way.delay,
    login,
    besideArgv,
    config: (fields) => readSshConfig({ ...login, ...fields }),
    async startSshd(lines = [], { socketActivated = false } = {}) {
      // One that has just been started does not bear its title yet, and one that is killed listens for a moment.
      await waitFor("the port to be free", async () => {
        await inside(["pkill", "-KILL", "-o", "-f", "^(sshd: /usr/sbin/sshd|systemd-socket-activate)"]);
        return !(await isListening());
      });
      await mustInside(["sh", "-c", `cat > ${dir}/sshd_config`], { stdin: sshdConfig(dir, [...lines, ...lenient]) });
      const config = ["-e", "-f", `${dir}/sshd_config`];
      const activate = ["systemd-socket-activate", "--accept", "--inetd", `--listen=127.0.0.1:${sshPort}`];
      await startDaemon(
        socketActivated ? [...activate, "/usr/sbin/sshd", "-i", ...config] : ["/usr/sbin/sshd", "-D", ...config],
      );
    },
    async startDropbear() {
      await killSshd();
      await mustInside(["dropbearconvert", "openssh", "dropbear", `${dir}/keys/ed25519`, `${dir}/keys/dropbear`]);
      await startDaemon(["dropbear", "-F", "-E", "-p", `127.0.0.1:${sshPort}`, "-r", `${dir}/keys/dropbear`]);
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
  await rig.startSshd();
  owned.use(undo.move());
  return rig;
}

function initOf(holder: ChildProcess, said: string): number | undefined {
  if (holder.exitCode !== null) throw new Hopeless(`the machine could not be made: ${said}`);
  if (!said.includes("ready")) return undefined;
  const children = readFileSync(`/proc/${holder.pid}/task/${holder.pid}/children`, "utf8");
  return Number.parseInt(children, 10) || undefined;
}

function sshdConfig(dir: string, lines: readonly string[]): string {
  return [
    ...lines,
    `Port ${sshPort}`,
    "ListenAddress 127.0.0.1",
    ...["ed25519", "rsa"].map((type) => `HostKey ${dir}/keys/${type}`),
    "UsePAM no",
    "PasswordAuthentication yes",
    "PermitRootLogin yes",
    "PidFile none",
    // A subsystem may be defined once only.
    ...(lines.some((line) => line.startsWith("Subsystem ")) ? [] : ["Subsystem sftp internal-sftp"]),
    `SetEnv PATH=${dir}/bin:/usr/bin:/bin`,
    "",
  ].join("\n");
}
