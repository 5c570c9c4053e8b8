import { accessSync, constants } from "node:fs";
import { join } from "node:path";
import { must, start } from "./processes.ts";

/** Where the programs of a cluster lie, by name. */
export interface Tools {
  path(name: string): string;
}

const clusterFolder = join(import.meta.dirname, "..", "cluster");

/** The programs built from the pinned Go module; `etcd` and others of the machine come from PATH. */
const built = [
  "kube-apiserver",
  "kube-controller-manager",
  "kube-scheduler",
  "kube-proxy",
  "kubectl",
  "kubelet",
  "agnhost",
] as const;

/**
 * Makes sure that every program of the cluster is there: installs the Debian packages that lack, builds
 * the pinned Kubernetes programs once per machine. Where `KUBEBUILDER_ASSETS` names a folder, the
 * programs in it come first. Throws with one sentence that says what is missing.
 */
export async function findTools(say: (line: string) => void): Promise<Tools> {
  if (process.platform !== "linux" || process.getuid?.() !== 0)
    throw new Error("the test cluster needs Linux and root: network namespaces, mounts and containers are made");
  await runVisibly([join(clusterFolder, "install-packages.sh")]);
  const folder = await buildTools(say);
  const assets = process.env.KUBEBUILDER_ASSETS;
  return {
    path(name) {
      const candidates = [
        ...(assets ? [join(assets, name)] : []),
        join(folder, name),
        ...["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"].map((dir) =>
          join(dir, name),
        ),
      ];
      const found = candidates.find(isExecutable);
      if (!found) throw new Error(`the program ${name} is missing: looked at ${candidates.join(", ")}`);
      return found;
    },
  };
}

async function buildTools(say: (line: string) => void): Promise<string> {
  const assets = process.env.KUBEBUILDER_ASSETS;
  const wanted = built.filter((name) => !(assets && isExecutable(join(assets, name))));
  const folder = (await must([join(clusterFolder, "tools", "build.sh"), "--folder"])).trim();
  if (wanted.every((name) => isExecutable(join(folder, name)))) return folder;
  say("building the cluster's programs from Go modules: once per machine, up to 10 minutes on two cores");
  await runVisibly([join(clusterFolder, "tools", "build.sh"), ...wanted]);
  return folder;
}

/** Runs a long command whose progress (standard error) the user should see. */
function runVisibly(argv: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = start(argv, { stdio: ["ignore", "ignore", "inherit"] });
    child.once("error", reject);
    child.once("close", (code) =>
      code === 0 ? resolve() : reject(new Error(`${argv[0]} failed with ${code}: its own words are above`)),
    );
  });
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
