import assert from "node:assert/strict";
import { mkdtempSync, openSync, readFileSync, readSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Architecture, graftletArchive, ownArchitecture } from "../harness/image.ts";
import { must } from "../harness/processes.ts";
import { type RuntimeRig, startRuntimeRig } from "../harness/runtime-rig.ts";
import { findTools, type Tools } from "../harness/tools.ts";

const mebibyte = 2 ** 20;
/** What an image may add to its base, compressed, bytes. */
const allowed = 60 * mebibyte;
/** `e_machine` of an ELF file. @see https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html */
const machines: Readonly<Record<Architecture, number>> = { amd64: 62, arm64: 183 };
const otherArchitecture: Architecture = ownArchitecture === "amd64" ? "arm64" : "amd64";

/** An image's archive, unpacked. */
interface Unpacked {
  readonly folder: string;
  readonly layers: readonly string[];
  readonly config: { readonly architecture: string; readonly config: { readonly User: string } };
}

describe("the image built by docker build", { timeout: 1_800_000 }, () => {
  const scratch = mkdtempSync(join(tmpdir(), "graftlet-image-test-"));
  let tools: Tools;
  let rig: RuntimeRig;
  let archive: string;

  const docker = (...args: readonly string[]): Promise<string> =>
    must([tools.path("docker"), "--host", `unix://${rig.layout.dockerSocket}`, ...args], { timeoutMs: 180_000 });
  const runs = (...args: readonly string[]): Promise<string> =>
    docker("run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL", ...args);
  const unpack = async (from: string, name: string): Promise<Unpacked> => {
    const folder = join(scratch, name);
    await must(["mkdir", folder]);
    await must(["tar", "-C", folder, "-xf", from], { timeoutMs: 120_000 });
    const [image] = JSON.parse(readFileSync(join(folder, "manifest.json"), "utf8")) as {
      Layers: string[];
      Config: string;
    }[];
    assert.ok(image);
    const config = JSON.parse(readFileSync(join(folder, image.Config), "utf8")) as Unpacked["config"];
    return { folder, layers: image.Layers.map((layer) => join(folder, layer)), config };
  };
  /** The machine that its Node is built for, and what its files are called. */
  const look = async ({ folder, layers }: Unpacked): Promise<{ machine: number; names: string }> => {
    const names = (await Promise.all(layers.map((layer) => must(["tar", "-tf", layer])))).join("");
    const withNode = layers.at(-1) ?? "";
    await must(["tar", "-C", folder, "-xf", withNode, "usr/local/bin/node"], { timeoutMs: 60_000 });
    const header = Buffer.alloc(20);
    readSync(openSync(join(folder, "usr/local/bin/node"), "r"), header);
    return { machine: header.readUInt16LE(18), names };
  };

  before(async () => {
    tools = await findTools((line) => console.error(line));
    archive = await graftletArchive(tools, (line) => console.error(line));
    rig = await startRuntimeRig("image-run", "docker");
    await docker("load", `--input=${archive}`);
  });
  after(async () => {
    await rig?.[Symbol.asyncDispose]();
    rmSync(scratch, { recursive: true, force: true });
  });

  test("runs as a non-root user with a read-only root, on the Node.js that package.json pins", async () => {
    assert.match(await runs("graftlet/graftlet", "--version"), /^Kubernetes v1\.36\.\d+ \(graftlet /);
    const asked = await runs(
      "--entrypoint=/usr/local/bin/node",
      "graftlet/graftlet",
      "-p",
      "JSON.stringify([process.getuid(), process.getgid(), process.version])",
    );
    const { optionalDependencies } = JSON.parse(
      readFileSync(join(import.meta.dirname, "..", "..", "package.json"), "utf8"),
    ) as { optionalDependencies: Record<string, string> };
    const pinned = optionalDependencies[`node-linux-${process.arch}`];
    assert.deepEqual(JSON.parse(asked), [65532, 65532, `v${pinned}`]);
  });

  test("loads every provider from the single file", async () => {
    const refused = runs(
      "graftlet/graftlet",
      "--provider=ssh",
      "--provider-config=/none.yaml",
      "--hostname-override=node-1",
    );
    await assert.rejects(refused, /\/none\.yaml/);
  });

  test("adds at most 60 MiB to its base image, and contains licences but no shell, npm or headers", async (t) => {
    const { layers, folder, config } = await unpack(archive, "own");
    assert.equal(config.config.User, "65532:65532");
    const sizes = await Promise.all(
      layers
        .slice(1)
        .map(async (layer) => Number(await must(["sh", "-c", `gzip -c ${layer} | wc -c`], { timeoutMs: 300_000 }))),
    );
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    t.diagnostic(`${(bytes / mebibyte).toFixed(1)} MiB compressed over its base`);
    assert.ok(bytes < allowed, `${bytes} bytes`);
    const { machine, names } = await look({ folder, layers, config });
    assert.equal(machine, machines[ownArchitecture]);
    for (const licence of ["doc/node/LICENSE", "doc/graftlet/LICENSE", "doc/graftlet/THIRD-PARTY-NOTICES.txt"])
      assert.match(names, new RegExp(`^(\\./)?usr/share/${licence}$`, "m"));
    assert.doesNotMatch(names, /(bin\/(sh|bash|npm|npx)|\/include\/|node_modules\/)/);
  });

  test("builds for the other architecture with a build argument, without running code of that architecture", async () => {
    const other = await unpack(
      await graftletArchive(tools, (line) => console.error(line), { architecture: otherArchitecture }),
      "other",
    );
    assert.equal(other.config.architecture, otherArchitecture);
    assert.equal((await look(other)).machine, machines[otherArchitecture]);
  });
});
