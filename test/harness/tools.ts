import { accessSync, constants, existsSync } from "node:fs";
import { join } from "node:path";
import { type ContainerdVersion, containerdUnderTest } from "./containerd-version.ts";
import type { DockerVersion } from "./docker-version.ts";
import { prepared } from "./prepared.ts";
import { must, start } from "./processes.ts";
import { type ImageProgram, type Kit, testKit } from "../cluster/tools/kits.ts";

/** Where the programs of a cluster lie, by name. */
export interface Tools {
  path(name: string): string;
}

const clusterFolder = join(import.meta.dirname, "..", "cluster");

/** The containerd that is not Debian's, with what it brings. */
const ofContainerd = ["containerd", "containerd-shim-runc-v2", "ctr"] as const;

/** A Docker Engine that is not Debian's. */
const ofDocker = ["dockerd", "docker-proxy"] as const;

/** Programs of the runtimes that are built by themselves, by the folder beside the others' modules. */
export const programsOf = { "docker-28": ofDocker, "docker-29": ofDocker, crio: ["crio", "pinns"] } as const;
export type BuiltRuntime = keyof typeof programsOf;

/** What another version of Kubernetes brings of them: its API server and what may not be newer than that. */
const ofControlPlane = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] as const;

/** The folders that programs lie in. */
export interface ToolFolders {
  readonly assets?: string;
  readonly main: string;
  /** That of the containerd that is not Debian's. */
  readonly containerd?: string;
  /** That of the runc which that containerd runs. */
  readonly runc?: string;
  /** That of the Docker Engine that is not Debian's. */
  readonly docker?: string;
  /** That of a control plane of another version. */
  readonly controlPlane?: string;
}

/** The programs of a cluster: where a run has prepared them those, or as `findToolFolders` finds them. */
export async function findTools(
  say: Say,
  containerd: ContainerdVersion = containerdUnderTest(),
  kit: Kit = testKit,
  docker: DockerVersion = "20.10",
): Promise<Tools> {
  const known = kit === testKit ? prepared()?.tools[containerd] : undefined;
  const folders = known ?? (await findToolFolders(say, containerd, kit));
  return toolsIn(docker === "20.10" ? folders : { ...folders, docker: await buildRuntime(`docker-${docker}`, say) });
}

/**
 * Makes sure that every program of the cluster is there: installs the Debian packages that lack, builds
 * the kit's programs once per machine; `etcd` and others of the machine come from PATH. Where
 * `KUBEBUILDER_ASSETS` names a folder, the programs in it come first. Where `GRAFTLET_TEST_KUBERNETES` names
 * a minor version, such as 1.35, the control plane is of that version. Throws with one sentence that says
 * what is missing.
 */
export async function findToolFolders(say: Say, containerd: ContainerdVersion, kit: Kit): Promise<ToolFolders> {
  await installPackages();
  const assets = process.env.KUBEBUILDER_ASSETS;
  const lacking = kit.programs.filter((name) => !(assets && isExecutable(join(assets, name))));
  const main = await buildTools({ names: lacking, what: "the cluster's programs", minutes: 10 }, say);
  const newer =
    containerd === "1.6"
      ? undefined
      : await buildTools(
          { module: "containerd", names: ofContainerd, what: `containerd ${containerd}`, minutes: 4 },
          say,
        );
  const runc =
    newer &&
    (await buildTools({ module: "runc", names: ["runc"], what: "a runc with user namespaces", minutes: 2 }, say));
  const older = await buildControlPlane(say);
  return {
    ...(assets && { assets }),
    main,
    ...(newer && { containerd: newer }),
    ...(runc && { runc }),
    ...(older && { controlPlane: older }),
  };
}

/** The programs in those folders; what is in none of them is the machine's. */
export function toolsIn({ assets, main, containerd, runc, docker, controlPlane }: ToolFolders): Tools {
  const among = (names: readonly string[], folder: string | undefined, name: string): string[] =>
    folder && names.includes(name) ? [join(folder, name)] : [];
  return {
    path(name) {
      const candidates = [
        ...among(ofControlPlane, controlPlane, name),
        ...among(ofContainerd, containerd, name),
        ...among(["runc"], runc, name),
        ...among(ofDocker, docker, name),
        ...(assets ? [join(assets, name)] : []),
        join(main, name),
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

/** Installs the Debian packages that lack. Throws where the machine is not one for a test cluster. */
export async function installPackages(): Promise<void> {
  if (process.platform !== "linux" || process.getuid?.() !== 0)
    throw new Error("the test cluster needs Linux and root: network namespaces, mounts and containers are made");
  await runVisibly([join(clusterFolder, "install-packages.sh")]);
}

/** Builds a program of one of the modules, once per machine. @returns its path. */
export async function buildProgram({ name, module }: ImageProgram, say: Say): Promise<string> {
  return join(await buildTools({ module, names: [name], what: name, minutes: 4 }, say), name);
}

/** Kubernetes' test suites, the program that runs them, and one that they run in a pod. */
export type SuiteProgram = "e2e.test" | "e2e_node.test" | "ginkgo" | "sample-device-plugin";

/** Makes sure that these programs are there: builds them once per machine. @returns the folder that they are in. */
export function buildSuites(names: readonly SuiteProgram[], say: Say): Promise<string> {
  return buildTools({ module: "conformance", names, what: "Kubernetes' test suites", minutes: 10 }, say);
}

type Say = (line: string) => void;

/** Programs of a Go module below test/cluster/tools. */
interface Built {
  /** Its folder; that folder itself unless given. */
  readonly module?: string;
  readonly names: readonly string[];
  /** What is said to be built, and how long that takes at most on two cores. */
  readonly what: string;
  readonly minutes: number;
}

/** Builds what lacks of them, once per machine. @returns the folder that they are in. */
async function buildTools({ module, names, what, minutes }: Built, say: Say): Promise<string> {
  const build = [join(clusterFolder, "tools", "build.sh"), ...(module ? ["--module", module] : [])];
  const folder = (await must([...build, "--folder"])).trim();
  if (names.every((name) => isExecutable(join(folder, name)))) return folder;
  say(`building ${what} from Go modules: once per machine, up to ${minutes} minutes on two cores`);
  await runVisibly([...build, ...names]);
  return folder;
}

/** Makes sure that the programs of a runtime are there. @returns the folder that they are in. */
export function buildRuntime(runtime: BuiltRuntime, say: Say): Promise<string> {
  return buildTools({ module: runtime, names: programsOf[runtime], what: runtime, minutes: 4 }, say);
}

/** Makes sure that gVisor's programs are there: `runsc`, and the `shim` by which containerd runs it. @returns the folder that they are in. */
export function buildGvisor(say: Say): Promise<string> {
  return buildTools({ module: "gvisor", names: ["runsc", "shim"], what: "gVisor", minutes: 4 }, say);
}

/** The folder of the control plane that `GRAFTLET_TEST_KUBERNETES` asks for; undefined where it asks for none. */
async function buildControlPlane(say: Say): Promise<string | undefined> {
  const version = process.env.GRAFTLET_TEST_KUBERNETES;
  if (!version) return undefined;
  const module = `kubernetes-${version}`;
  const modules = join(clusterFolder, "tools");
  if (!/^\d+\.\d+$/.test(version) || !existsSync(join(modules, module)))
    throw new Error(
      `GRAFTLET_TEST_KUBERNETES is ${JSON.stringify(version)}: there is no ${modules}/kubernetes-${version}; leave it out for the version of the other programs`,
    );
  return buildTools(
    { module, names: ofControlPlane, what: `the control plane of Kubernetes ${version}`, minutes: 10 },
    say,
  );
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
