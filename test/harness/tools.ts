import { accessSync, constants, existsSync } from "node:fs";
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

/** What another version of Kubernetes brings of them: its API server and what may not be newer than that. */
const ofControlPlane = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] as const;

/**
 * Makes sure that every program of the cluster is there: installs the Debian packages that lack, builds
 * the pinned Kubernetes programs once per machine. Where `KUBEBUILDER_ASSETS` names a folder, the
 * programs in it come first. Where `GRAFTLET_TEST_KUBERNETES` names a minor version, such as 1.35, the
 * control plane is of that version. Throws with one sentence that says what is missing.
 */
export async function findTools(say: (line: string) => void): Promise<Tools> {
  if (process.platform !== "linux" || process.getuid?.() !== 0)
    throw new Error("the test cluster needs Linux and root: network namespaces, mounts and containers are made");
  await runVisibly([join(clusterFolder, "install-packages.sh")]);
  const folder = await buildTools(say);
  const older = await buildControlPlane(say);
  const assets = process.env.KUBEBUILDER_ASSETS;
  return {
    path(name) {
      const candidates = [
        ...(older && ofControlPlane.some((each) => each === name) ? [join(older, name)] : []),
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

/** The folder of the control plane that `GRAFTLET_TEST_KUBERNETES` asks for; undefined where it asks for none. */
async function buildControlPlane(say: (line: string) => void): Promise<string | undefined> {
  const version = process.env.GRAFTLET_TEST_KUBERNETES;
  if (!version) return undefined;
  const modules = join(clusterFolder, "tools");
  if (!/^\d+\.\d+$/.test(version) || !existsSync(join(modules, `kubernetes-${version}`)))
    throw new Error(
      `GRAFTLET_TEST_KUBERNETES is ${JSON.stringify(version)}: there is no ${modules}/kubernetes-${version}; leave it out for the version of the other programs`,
    );
  const build = [join(modules, "build.sh"), "--module", `kubernetes-${version}`];
  const folder = (await must([...build, "--folder"])).trim();
  if (ofControlPlane.every((name) => isExecutable(join(folder, name)))) return folder;
  say(`building the control plane of Kubernetes ${version}: once per machine, up to 10 minutes on two cores`);
  await runVisibly(build);
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
