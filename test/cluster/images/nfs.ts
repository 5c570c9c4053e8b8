import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { must } from "../../harness/processes.ts";
import type { ImageRecipe, LayerRecipe } from "./catalog.ts";

const packages = "nfs-kernel-server nfs-common rpcbind netbase libtirpc-common";
const libraries = "libtirpc3 libevent-core-2.1-7 libnfsidmap1 libwrap0 libnsl2 libkeyutils1 libcap2 libsqlite3-0";
const download = `apt-get -o APT::Sandbox::User=root download ${packages} ${libraries}`;

/** Serves the folders that it is given, or /exports, to everyone until SIGTERM: for version 4 each is the root, too. */
const server = `#!/bin/bash
ulimit -n 65535
group=
while getopts G: option; do [ "$option" = G ] && group=$OPTARG; done
shift $((OPTIND - 1))
for folder; do
  echo "$folder *(rw,fsid=0,insecure,no_root_squash,no_subtree_check)" >>/etc/exports
  [ -z "$group" ] || { chmod 070 "$folder" && chgrp "$group" "$folder"; }
  echo "Hello from NFS!" >"$folder/index.html" && chmod 644 "$folder/index.html"
done
stop() {
  rpc.nfsd 0
  exportfs -au
  exit 0
}
trap stop TERM
set -e
rpcinfo 127.0.0.1 >/dev/null 2>&1 || rpcbind -w
mount -t nfsd nfsd /proc/fs/nfsd
rpc.mountd -V 3
exportfs -r
rpc.nfsd -G 10 -V 3
rpc.statd --no-notify
echo "NFS started"
set +e
while true; do sleep 1; done
`;

/** Debian's NFS server of the kernel, taken out of its packages. */
const nfs: LayerRecipe = {
  name: "nfs",
  async fill(root) {
    const scratch = mkdtempSync(join(tmpdir(), "graftlet-nfs-"));
    try {
      const unpack = 'for deb in *.deb; do dpkg-deb -x "$deb" tree; done';
      await must(["sh", "-ec", `${download} || { apt-get update && ${download}; }; ${unpack}`], {
        cwd: scratch,
        timeoutMs: 300_000,
      });
      const tree = join(scratch, "tree");
      for (const program of ["sbin/rpcbind", "sbin/rpc.statd", "sbin/sm-notify", "usr/bin/rpcinfo"])
        await root.program(join(tree, program), `/${program}`, tree);
      for (const program of ["rpc.mountd", "rpc.nfsd", "exportfs"])
        await root.program(join(tree, "usr/sbin", program), `/usr/sbin/${program}`, tree);
      for (const file of ["netconfig", "rpc", "services", "protocols"])
        root.file(`/etc/${file}`, readFileSync(join(tree, "etc", file)));
    } finally {
      rmSync(scratch, { recursive: true, force: true });
    }
    const users = ["root:x:0:0:root:/root:/bin/sh", "_rpc:x:101:65534::/run/rpcbind:/bin/false"];
    root.file("/etc/passwd", `${users.join("\n")}\n`);
    root.file("/usr/local/bin/serve", server, 0o755);
    for (const file of ["etab", "rmtab", "xtab"]) root.file(`/var/lib/nfs/${file}`, "");
    for (const folder of [
      "/var/lib/nfs/sm",
      "/var/lib/nfs/sm.bak",
      "/var/lib/nfs/v4recovery",
      "/run/rpcbind",
      "/exports",
    ])
      root.directory(folder);
  },
};

/** The NFS server of upstream's tests, and what they wait for beside it: its provisioner has no Go module that builds, and only tests
 *  of dynamic claims ask it for anything. */
export function nfsImages(shell: LayerRecipe): readonly ImageRecipe[] {
  const Env = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"];
  return [
    {
      name: "e2e-test-images/volume/nfs",
      tags: ["1.6.0"],
      layers: [shell, nfs],
      config: { Entrypoint: ["/usr/local/bin/serve"], Cmd: ["/exports"], Env },
      isOnDemand: true,
    },
    {
      name: "sig-storage/nfs-provisioner",
      tags: ["v4.0.8"],
      layers: [shell],
      config: { Entrypoint: ["/bin/sh", "-c", "exec sleep infinity"], Env },
      isOnDemand: true,
    },
  ];
}
