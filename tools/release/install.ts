import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { V1Deployment } from "@kubernetes/client-node";
import { objectsIn, ofKind } from "../../test/harness/chart.ts";
import { ownArchitecture } from "../../test/harness/image.ts";
import { must } from "../../test/harness/processes.ts";
import type { ReleaseLab } from "./lab.ts";
import type { Published } from "./making.ts";
import { verifySigned } from "./verify.ts";

/** What somebody sees who installs a release from its registry and its files alone. */
export interface Installed {
  /** Types of the statements about the image. */
  readonly statements: readonly string[];
  /** The image that the chart's Pod runs. */
  readonly image: string;
  /** The platforms of that image. */
  readonly platforms: readonly string[];
  /** What `graftlet --version` says in the image, and beside the Node of the tarball. */
  readonly versions: readonly [image: string, tarball: string];
}

/** Installs it: signatures, chart, image, tarball. @param folder of its files. @throws where one of them is not what it is said to be. */
export async function install(lab: ReleaseLab, published: Published, folder: string): Promise<Installed> {
  const scratch = mkdtempSync(join(tmpdir(), "graftlet-install-"));
  try {
    await verifyChecksums(folder, scratch);
    const statements = await verifySigned(lab.registry, published, readFileSync(join(folder, "cosign.pub"), "utf8"));
    const image = await imageOfChart(lab, published);
    const { text, digest } = await lab.registry.manifest(image);
    if (!image.endsWith(`@${digest}`)) throw new Error(`${image} is ${digest} in the registry`);
    const { manifests } = JSON.parse(text) as { manifests: { platform: { os: string; architecture: string } }[] };
    const platforms = manifests.map(({ platform }) => `${platform.os}/${platform.architecture}`);
    await lab.docker("pull", "--quiet", image);
    const limits = ["--network=none", "--read-only", "--cap-drop=ALL"];
    const inImage = await lab.docker("run", "--rm", ...limits, image, "--version");
    return { statements, image, platforms, versions: [inImage, await runTarball(published, folder, scratch)] };
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** As the documents say: openssl and sha256sum, which every machine has. */
async function verifyChecksums(folder: string, scratch: string): Promise<void> {
  const signature = join(scratch, "signature");
  await must(["openssl", "base64", "-d", "-A", "-in", "SHA256SUMS.sig", "-out", signature], { cwd: folder });
  const check = ["openssl", "dgst", "-sha256", "-verify", "cosign.pub", "-signature", signature, "SHA256SUMS"];
  await must(check, { cwd: folder });
  await must(["sha256sum", "--check", "--strict", "SHA256SUMS"], { cwd: folder });
}

/** What somebody says of a machine, as `helm --set` takes it. */
const machine = "nodes[0].name=edge-1,nodes[0].ssh.host=192.0.2.7,nodes[0].ssh.existingSecret=edge-1-ssh";

/** The image of the Pod in the chart as the registry has it. */
async function imageOfChart({ helm }: ReleaseLab, { chart, version }: Published): Promise<string> {
  const from = [`oci://${chart}`, "--version", version, "--plain-http"];
  const text = await helm("template", "edge", ...from, "--namespace=graftlet", "--set", machine);
  const [deployment] = ofKind<V1Deployment>(objectsIn(text), "Deployment");
  const image = deployment?.spec?.template.spec?.containers[0]?.image;
  if (!image) throw new Error(`the chart ${chart} ${version} has no Deployment with an image`);
  return image;
}

async function runTarball({ version }: Published, folder: string, scratch: string): Promise<string> {
  const name = `graftlet-${version}-linux-${ownArchitecture}`;
  await must(["tar", "-C", scratch, "-xzf", join(folder, `${name}.tar.gz`)]);
  // By a link, as one in /usr/local/bin is, and with no Node on the way.
  await must(["ln", "-s", join(scratch, name, "graftlet"), join(scratch, "graftlet")]);
  return must(["env", "-i", "PATH=/usr/bin:/bin", join(scratch, "graftlet"), "--version"]);
}
