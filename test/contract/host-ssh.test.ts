import { hostContract } from "./host.ts";
import { sshUnderTest } from "./ssh-under-test.ts";

hostContract("ssh, as root", () => sshUnderTest());

hostContract("ssh, as a user with sudo", () => sshUnderTest({ user: "helper" }));

hostContract("ssh, where sshd forwards nothing out and has no SFTP, and /bin/sh is bash", () =>
  sshUnderTest({
    sshd: ["AllowTcpForwarding remote", "AllowStreamLocalForwarding remote", "Subsystem none /bin/false"],
    programs: "bash",
  }),
);

hostContract("ssh, where all programs are busybox's", () => sshUnderTest({ programs: "busybox" }));

hostContract("ssh, as a user with sudo, where all programs are busybox's and there is no SFTP", () =>
  sshUnderTest({
    user: "helper",
    sshd: ["Subsystem none /bin/false"],
    programs: "busybox",
    hidden: ["/usr/lib/openssh/sftp-server"],
  }),
);
