import { sshHost } from "../../providers/ssh/host.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { silentLog } from "../../src/lib/log.ts";
import { awkwardThere } from "./awkward.ts";
import type { HostUnderTest } from "./host.ts";
import { type SshdRig, type SshdRigOptions, startSshdRig } from "./sshd-rig.ts";

/** Only what is wrong: a link that goes down on purpose is not. */
const log = silentLog();

function hostOf(rig: SshdRig, fields?: Readonly<Record<string, unknown>>) {
  return sshHost({ config: rig.config(fields), clock: systemClock(), log });
}

/** Which machine, as whom, and lines before its sshd's configuration. */
export interface SshTarget extends SshdRigOptions {
  readonly user?: string;
  readonly sshd?: readonly string[];
  /** Programs that the machine lacks. */
  readonly hidden?: readonly string[];
}

/** A machine behind its sshd, for the contract. */
export async function sshUnderTest({
  user = "root",
  sshd = [],
  hidden = [],
  ...options
}: SshTarget = {}): Promise<HostUnderTest> {
  const rig = await startSshdRig("contract", options);
  for (const program of hidden) await rig.mustInside(["mount", "--bind", "/dev/null", program]);
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
    ...awkwardThere(rig.mustInside, rig.startInside),
    async mount(path) {
      await rig.mustInside(["mount", "-t", "tmpfs", "tmpfs", path]);
      return { [Symbol.asyncDispose]: async () => void (await rig.mustInside(["umount", path])) };
    },
    unmount: async (path) => void (await rig.mustInside(["umount", path])),
    async [Symbol.asyncDispose]() {
      await host[Symbol.asyncDispose]();
      await rig[Symbol.asyncDispose]();
    },
  };
}
