import { sshHost } from "../../providers/ssh/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import { type HostUnderTest, hostContract } from "./host.ts";
import { type SshdRig, type SshdRigOptions, startSshdRig } from "./sshd-rig.ts";

/** Only what is wrong: a link that goes down on purpose is not. */
const log = createLogger(0, { write: () => undefined });

function hostOf(rig: SshdRig, fields?: Readonly<Record<string, unknown>>) {
  return sshHost({ config: rig.config(fields), clock: systemClock(), log });
}

interface Target extends SshdRigOptions {
  readonly user?: string;
  readonly sshd?: readonly string[];
}

async function sshUnderTest({ user = "root", sshd = [], ...options }: Target = {}): Promise<HostUnderTest> {
  const rig = await startSshdRig("contract", options);
  if (sshd.length > 0) await rig.startSshd(sshd);
  const host = hostOf(rig, { user });
  return {
    host,
    dir: rig.dir,
    makeFifo: async (path) => void (await rig.mustInside(["mkfifo", path])),
    makeSocket: async (path) => {
      const make = "IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die";
      await rig.mustInside(["perl", "-MIO::Socket::UNIX", "-e", make, path]);
    },
    async mount(path) {
      await rig.mustInside(["mount", "-t", "tmpfs", "tmpfs", path]);
      return { [Symbol.asyncDispose]: async () => void (await rig.mustInside(["umount", path])) };
    },
    async [Symbol.asyncDispose]() {
      await host[Symbol.asyncDispose]();
      await rig[Symbol.asyncDispose]();
    },
  };
}

hostContract("ssh, as root", () => sshUnderTest());

hostContract("ssh, as a user with sudo", () => sshUnderTest({ user: "helper" }));

hostContract("ssh, where sshd forwards nothing out and has no SFTP, and /bin/sh is bash", () =>
  sshUnderTest({
    sshd: ["AllowTcpForwarding remote", "AllowStreamLocalForwarding remote", "Subsystem none /bin/false"],
    programs: "bash",
  }),
);

hostContract("ssh, where all programs are busybox's", () => sshUnderTest({ programs: "busybox" }));
