import { chmodSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { must } from "../../harness/processes.ts";
import type { Tools } from "../../harness/tools.ts";
import type { ImageConfig } from "./registry-store.ts";
import type { RootFs } from "./rootfs.ts";
import { unpackPackages } from "./debian.ts";
import { nfsImages } from "./nfs.ts";
import { postgres } from "./postgres.ts";
import { privatePause } from "./private-pause.ts";
import { program, storageImages } from "./storage.ts";

/** A layer by name; the first use of it builds it. */
export interface LayerRecipe {
  readonly name: string;
  fill(root: RootFs, tools: Tools): Promise<void>;
}

/** An image: where the registry serves it, of what layers, run how. */
export interface ImageRecipe {
  readonly name: string;
  readonly tags: readonly string[];
  readonly layers: readonly LayerRecipe[];
  readonly config: ImageConfig;
  /** Few tests start it: whoever does adds it. So does one with a program of a module of its own. */
  readonly isOnDemand?: true;
}

const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const accounts = [
  "root:x:0:0:root:/root:/bin/sh",
  "daemon:x:1:1:daemon:/usr/sbin:/bin/false",
  "nobody:x:65534:65534:nobody:/home:/bin/false",
];
const groups = ["root:x:0:", "daemon:x:1:", "nogroup:x:65534:"];

/** An applet that Debian's busybox leaves out, as far as upstream's tests ask for it: the time of day, to the millisecond. */
const nmeter = `#!/bin/bash
[ "$*" = "-d0 %3t" ] || { echo "nmeter: only -d0 %3t is known" >&2; exit 1; }
now=$EPOCHREALTIME
TZ=UTC printf '%(%H:%M:%S)T.%s\\n' "\${now%.*}" "\${now:11:3}"
`;

const ashUnlessItDrops = `#!/bin/bash
while IFS= read -r -d '' variable; do
  [[ $variable =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || exec -a "$0" /bin/bash "$@"
done </proc/self/environ
exec -a "$0" /bin/ash "$@"
`;

/** busybox under every name it answers to, and bash as the shell: busybox's drops variables whose names are no identifiers. */
export const shell: LayerRecipe = {
  name: "shell",
  async fill(root) {
    for (const [dir, mode] of [
      ["/etc", 0o755],
      ["/root", 0o700],
      ["/home", 0o755],
      ["/var/log", 0o755],
      ["/var/run", 0o755],
      ["/tmp", 0o1777],
      ["/dev", 0o755],
      ["/proc", 0o755],
      ["/sys", 0o755],
    ] as const)
      root.directory(dir, mode);
    root.file("/etc/passwd", `${accounts.join("\n")}\n`);
    root.file("/etc/group", `${groups.join("\n")}\n`);
    root.file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n");
    const busybox = (await must(["sh", "-c", "command -v busybox"])).trim();
    await root.program(busybox, "/bin/busybox");
    for (const applet of (await must([busybox, "--list"])).trim().split("\n"))
      if (applet !== "busybox") root.link(`/bin/${applet}`, "busybox");
    await root.program("/bin/bash", "/bin/bash");
    root.link("/bin/sh", "bash");
    root.file("/bin/nmeter", nmeter, 0o755);
  },
};

/** busybox's own shell in bash's place, whose words upstream's tests know; bash where that would drop a variable. */
const ash: LayerRecipe = {
  name: "ash",
  async fill(root) {
    root.file("/bin/sh", ashUnlessItDrops, 0o755);
  },
};

const pause = {
  layers: [{ name: "pause", fill: (root: RootFs): Promise<void> => buildGo("pause", join(root.folder, "pause")) }],
  config: { Entrypoint: ["/pause"], Env: [path], User: "65535:65535" },
};

/** Says whose rights it has: it is root's, and takes them on for whoever runs it. */
const nonewprivs: LayerRecipe = {
  name: "nonewprivs",
  async fill(root) {
    const program = join(root.folder, "usr/local/bin/nnp");
    await buildGo("nonewprivs", program);
    chmodSync(program, 0o6755);
  },
};

/** Builds the program in a folder beside this file, which needs nothing but Go itself. */
async function buildGo(folder: string, program: string): Promise<void> {
  await must(
    ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, join(import.meta.dirname, folder, "main.go")],
    { env: { CGO_ENABLED: "0", GO111MODULE: "off" }, timeoutMs: 600_000 },
  );
}

/** What upstream's tests find in agnhost: the program under both names, network tools, a user and a group of its own. */
const agnhost: LayerRecipe = {
  name: "agnhost",
  async fill(root, tools) {
    for (const tool of ["curl", "dig", "nslookup", "getent", "nc", "ip", "ss", "iperf", "nsenter"])
      await root.program(tools.path(tool));
    await root.program(tools.path("agnhost"), "/agnhost");
    root.link("/agnhost-2", "agnhost");
    root.directory("/uploads");
    await selfSigned(join(root.folder, "localhost"));
    root.file(
      "/etc/passwd",
      `${[...accounts, "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh"].join("\n")}\n`,
    );
    root.file(
      "/etc/group",
      `${[...groups, "user-defined-in-image:x:1000:", "group-defined-in-image:x:50000:user-defined-in-image"].join("\n")}\n`,
    );
    root.directory("/home/user-defined-in-image");
  },
};

/** What asks for names as programs with Debian's C library do. */
const resolving: LayerRecipe = {
  name: "resolving",
  async fill(root, tools) {
    for (const tool of ["dig", "getent", "hostname"]) await root.program(tools.path(tool));
    root.file("/etc/nsswitch.conf", "hosts: files dns\n");
  },
};

/** The pair that programs in agnhost serve TLS with: BASE.crt and BASE.key. */
async function selfSigned(base: string): Promise<void> {
  const request = [
    "openssl",
    "req",
    "-x509",
    "-newkey",
    "rsa:2048",
    "-nodes",
    "-days",
    "36500",
    "-subj",
    "/CN=localhost",
  ];
  const names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"];
  await must([...request, ...names, "-keyout", `${base}.key`, "-out", `${base}.crt`]);
  chmodSync(`${base}.key`, 0o644);
}

/** What a picture's image says of itself: upstream's tests of an update tell two apart by it. */
const picture = (name: string): LayerRecipe => ({
  name,
  fill(root) {
    root.file("/data.json", `${JSON.stringify({ image: `${name}.jpg` })}\n`);
    return Promise.resolve();
  },
});

const nginxConf = `user nobody nogroup;
worker_processes 1;
error_log /dev/stderr notice;
pid /run/nginx.pid;
events { worker_connections 512; }
http {
  include /etc/nginx/mime.types;
  default_type application/octet-stream;
  access_log /dev/stdout;
  server { listen 80; root /usr/share/nginx/html; index index.html; }
}
`;

/** Debian's nginx. */
const nginx: LayerRecipe = {
  name: "nginx",
  async fill(root) {
    using packages = await unpackPackages(["nginx", "nginx-common"]);
    const tree = packages.folder;
    await root.program(join(tree, "usr/sbin/nginx"), "/usr/sbin/nginx", tree);
    for (const file of ["/etc/nginx/mime.types", "/usr/share/nginx/html/index.html"])
      root.file(file, readFileSync(join(tree, file)));
    root.file("/etc/nginx/nginx.conf", nginxConf);
    for (const dir of ["/var/lib/nginx", "/var/log/nginx", "/run"]) root.directory(dir);
  },
};

const agnhostConfig: ImageConfig = {
  Entrypoint: ["/agnhost"],
  Cmd: ["pause"],
  Env: [path],
  ExposedPorts: { "80/tcp": {}, "8080/tcp": {}, "8081/tcp": {}, "9376/tcp": {}, "5000/tcp": {} },
};
/** It serves the folder that it is run in. */
const pictureConfig: ImageConfig = { ...agnhostConfig, Cmd: ["test-webserver"] };
const busyboxConfig: ImageConfig = { Cmd: ["sh"], Env: [path] };
const nginxConfig: ImageConfig = {
  Cmd: ["nginx", "-g", "daemon off;"],
  Env: [path],
  ExposedPorts: { "80/tcp": {} },
  StopSignal: "SIGQUIT",
};

/** The device plugin of upstream's tests. */
export const samplePluginImage = "e2e-test-images/sample-device-plugin";

/** The image that upstream's tests pull with a cloud's credentials. */
export const upstreamPrivateImage = "k8s-authenticated-test/agnhost";

/** All images of the test cluster, under the names that upstream's tests and Docker Hub use. */
export const catalog: readonly ImageRecipe[] = [
  {
    name: "pause",
    tags: ["3.10.2"],
    ...pause,
  },
  {
    name: "coredns/coredns",
    tags: ["v1.15.0"],
    layers: [program("coredns")],
    config: { Entrypoint: ["/coredns"], Env: [path], ExposedPorts: { "53/tcp": {}, "53/udp": {} } },
  },
  {
    name: "metrics-server/metrics-server",
    tags: ["v0.9.0"],
    layers: [program("metrics-server")],
    config: { Entrypoint: ["/metrics-server"], Env: [path], User: "65534" },
  },
  { name: "e2e-test-images/busybox", tags: ["1.37.0-1", "1.36.1-1"], layers: [shell, ash], config: busyboxConfig },
  { name: "library/busybox", tags: ["1.37", "latest"], layers: [shell], config: busyboxConfig },
  {
    name: "private/busybox",
    tags: ["1.37"],
    layers: [shell],
    config: { ...busyboxConfig, Env: [path, "FROM=private"] },
  },
  {
    name: "e2e-test-images/agnhost",
    tags: ["2.63.0", "2.55"],
    layers: [shell, agnhost, privatePause(pause)],
    config: agnhostConfig,
  },
  {
    name: "e2e-test-images/glibc-dns-testing",
    tags: ["2.0.0"],
    layers: [shell, resolving],
    config: { Cmd: ["sh"], Env: [path] },
  },
  {
    name: "e2e-test-images/nonroot",
    tags: ["1.5"],
    layers: [shell, agnhost],
    config: { ...agnhostConfig, User: "1234" },
  },
  {
    name: "e2e-test-images/nonewprivs",
    tags: ["1.4"],
    layers: [shell, nonewprivs],
    config: { Cmd: ["nnp"], Env: [path] },
  },
  { name: "e2e-test-images/kitten", tags: ["1.8"], layers: [shell, agnhost, picture("kitten")], config: pictureConfig },
  {
    name: "e2e-test-images/nautilus",
    tags: ["1.8"],
    layers: [shell, agnhost, picture("nautilus")],
    config: pictureConfig,
  },
  { name: "e2e-test-images/nginx", tags: ["1.27-0", "1.15-4"], layers: [shell, nginx], config: nginxConfig },
  { name: "library/nginx", tags: ["1.27", "latest"], layers: [shell, nginx], config: nginxConfig },
  // It has no Go module: nothing asks it for anything, but a driver's pod is only Running with all its containers.
  {
    name: "sig-storage/csi-external-health-monitor-controller",
    tags: ["v0.17.0"],
    layers: [shell],
    config: { Entrypoint: ["/bin/sh", "-c", "exec sleep infinity"] },
  },
  {
    name: samplePluginImage,
    tags: ["1.7"],
    layers: [shell, program("sample-device-plugin", "/sampledeviceplugin")],
    config: { Entrypoint: ["/sampledeviceplugin", "-alsologtostderr"], Env: [path] },
  },
  {
    name: upstreamPrivateImage,
    tags: ["2.6"],
    layers: [shell],
    config: { Cmd: ["sleep", "3600"], Env: [path] },
    isOnDemand: true,
  },
  ...storageImages(shell),
  ...nfsImages(shell),
  { name: "library/postgres", tags: ["15"], layers: [shell, postgres], config: { Env: [path] }, isOnDemand: true },
];

/** The image that only the registry with credentials serves under its host's name. */
export const privateImageName = "private/busybox:1.37";
