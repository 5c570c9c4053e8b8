import { bindContract } from "./bind-subpath.ts";
import { localUnderTest, machineFromPod } from "./local-under-test.ts";
import { sshUnderTest } from "./ssh-under-test.ts";

bindContract("this machine", () => localUnderTest());

bindContract("a machine, from a Pod of its own", machineFromPod);

bindContract("ssh, as root", () => sshUnderTest());

bindContract("ssh, as a user with sudo, where /bin/sh is bash", () =>
  sshUnderTest({ user: "helper", programs: "bash" }),
);

bindContract("ssh, where all programs are busybox's", () => sshUnderTest({ programs: "busybox" }));
