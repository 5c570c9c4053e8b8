import { lockingShell } from "./flock.ts";
import type { FakeHost } from "./host.ts";

/** Puts what a kubelet reads of a machine where it reads it. */
export function furnish(host: FakeHost): void {
  const files = {
    "/proc/net/route": "Iface\tDestination\n",
    "/proc/net/fib_trie": "     |-- 192.0.2.7\n        /32 host LOCAL\n",
    "/proc/meminfo": "MemTotal: 4000000 kB\nMemFree: 3000000 kB\nInactive(file): 0 kB\n",
    "/proc/loadavg": "0.00 0.01 0.05 3/245 12345\n",
    "/proc/self/mountinfo": "",
    "/proc/self/cgroup": "0::/\n",
    "/sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n",
    "/etc/resolv.conf": "nameserver 192.0.2.53\n",
    "/var/lib/kubelet/file": "",
    "/var/lib/fake/file": "",
  };
  for (const [path, data] of Object.entries(files)) host.files.put(path, { data });
  host.program("uname", (_args, { stdout }) => {
    stdout.write("box 6.1.0 x86_64\n");
    return 0;
  });
  host.program("sh", lockingShell());
}
