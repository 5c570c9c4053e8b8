import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { parseCommandLine } from "../../../src/config/command-line.ts";
import { filesIo, nodeOf, refusalOf, run } from "./files.ts";

const flags = ["--image-credential-provider-config=/c.yaml", "--image-credential-provider-bin-dir=/bin/"];
const version = "credentialprovider.kubelet.k8s.io/v1";

const ecr = {
  name: "ecr",
  matchImages: ["*.dkr.ecr.*.amazonaws.com"],
  defaultCacheDuration: "12h",
  apiVersion: version,
};

function fileOf(...providers: readonly object[]): string {
  return JSON.stringify({ apiVersion: "kubelet.config.k8s.io/v1", kind: "CredentialProviderConfig", providers });
}

const filesWith = (...providers: readonly object[]) => ({ "/c.yaml": fileOf(...providers), "/bin/ecr": "" });

test("reads a provider with its program in the directory and its image patterns", () => {
  const env = [{ name: "AWS_PROFILE", value: "node" }];
  const { credentialProviders } = nodeOf(flags, filesWith({ ...ecr, args: ["get"], env }));
  assert.deepEqual(credentialProviders?.providers, [
    {
      name: "ecr",
      path: "/bin/ecr",
      args: ["get"],
      env,
      apiVersion: version,
      matchImages: ecr.matchImages,
      defaultCacheMs: 12 * 3_600_000,
    },
  ]);
  assert.equal(nodeOf([]).credentialProviders, undefined);
});

test("reads token attributes of a provider with an audience", () => {
  const tokenAttributes = {
    serviceAccountTokenAudience: "registry",
    cacheType: "Token",
    requireServiceAccount: true,
    requiredServiceAccountAnnotationKeys: ["example.com/identity"],
    optionalServiceAccountAnnotationKeys: ["example.com/Team"],
  };
  const given = { ...ecr, tokenAttributes };
  assert.deepEqual(nodeOf(flags, filesWith(given)).credentialProviders?.providers[0]?.token, {
    audience: "registry",
    cacheType: "Token",
    requireServiceAccount: true,
    requiredAnnotations: ["example.com/identity"],
    optionalAnnotations: ["example.com/Team"],
  });
  const gate = "KubeletServiceAccountTokenForCredentialProviders";
  assert.equal(
    refusalOf([...flags, `--feature-gates=${gate}=false`], filesWith(given)),
    `provider ecr: tokenAttributes needs the feature gate ${gate}; turn it on`,
  );
  assert.equal(nodeOf([...flags, `--feature-gates=${gate}=false`], filesWith(ecr)).nodeName, "worker-1.example");
});

test("reads the files of a directory in lexical order, with a single hash for all", () => {
  const [one, two] = [fileOf(ecr), fileOf({ ...ecr, name: "gcr" })];
  const files = { "/d/20.yml": two, "/d/10.json": one, "/d/README": "-", "/d/more/30.json": "-" };
  const programs = { "/bin/ecr": "", "/bin/gcr": "" };
  const argv = ["--image-credential-provider-config=/d", "--image-credential-provider-bin-dir=/bin"];
  const { credentialProviders } = nodeOf(argv, { ...files, ...programs });
  assert.deepEqual(
    credentialProviders?.providers.map(({ name }) => name),
    ["ecr", "gcr"],
  );
  const hash = createHash("sha256");
  for (const text of [one, two]) {
    const length = Buffer.alloc(8);
    length.writeUInt32BE(text.length, 4);
    hash.update(length).update(text);
  }
  assert.equal(credentialProviders.hash, `sha256:${hash.digest("hex")}`);
  assert.match(refusalOf(argv, { "/d/README": "", ...programs }), /\/d": the directory has no \*\.json, \*\.yaml or/);
});

test("applies the process's plugins to all nodes in a file", () => {
  const nodes = "apiVersion: graftlet.dev/v1alpha1\nkind: GraftletConfiguration\nnodes: [{name: a}, {name: b}]\n";
  const found = run([...flags, "--nodes=/n"], { ...filesWith(ecr), "/n": nodes }).nodes;
  assert.deepEqual(
    found.map(({ credentialProviders }) => credentialProviders?.providers[0]?.path),
    ["/bin/ecr", "/bin/ecr"],
  );
});

test("does not require the plugins for removing a node", () => {
  const { kind } = parseCommandLine(["remove", ...flags], filesIo());
  assert.equal(kind, "remove");
});

test("reports each invalid setting by name, with the remedy", () => {
  const where = "/c.yaml: providers[0]";
  const token = {
    serviceAccountTokenAudience: "registry",
    cacheType: "Token",
    requireServiceAccount: false,
  };
  const cases: readonly (readonly [object, string])[] = [
    [{ ...ecr, name: "" }, `${where}.name is not given; specify the program`],
    [{ ...ecr, name: "a/b" }, `${where}.name is "a/b": use the name of a file in /bin/, without a path or spaces`],
    [{ ...ecr, name: ".." }, `${where}.name is "..": use the name of a file in /bin/, without a path or spaces`],
    [{ ...ecr, name: "none" }, '/c.yaml: providers.name is "none": there is no program /bin/none; install it there'],
    [
      { ...ecr, apiVersion: "v2" },
      `${where}.apiVersion is "v2": write one of ${version}, ${version}beta1, ${version}alpha1`,
    ],
    [{ ...ecr, matchImages: [] }, `${where}.matchImages is []: list at least one location of images`],
    [
      { ...ecr, matchImages: ["https://x.io"] },
      `${where}.matchImages is "https://x.io": write a location such as *.registry.example.com/team`,
    ],
    [
      { ...ecr, defaultCacheDuration: undefined },
      `${where}.defaultCacheDuration is not given; write one such as "10m"`,
    ],
    [{ ...ecr, cache: "10m" }, `${where}.cache is "10m": is not a field of this configuration; remove it`],
    [
      { ...ecr, tokenAttributes: { ...token, requiredServiceAccountAnnotationKeys: ["a"] } },
      `${where}.tokenAttributes.requiredServiceAccountAnnotationKeys is ["a"]: they need requireServiceAccount: true; set that, or list them as optional`,
    ],
    [
      { ...ecr, tokenAttributes: { ...token, cacheType: undefined } },
      `${where}.tokenAttributes.cacheType is not given; write ServiceAccount, or Token`,
    ],
    [
      { ...ecr, tokenAttributes: { ...token, optionalServiceAccountAnnotationKeys: ["a", "a"] } },
      `${where}.tokenAttributes.optionalServiceAccountAnnotationKeys is "a": the key is listed twice; keep one`,
    ],
    [
      { ...ecr, apiVersion: `${version}beta1`, tokenAttributes: token },
      `${where}.apiVersion is "${version}beta1": tokenAttributes need ${version}`,
    ],
  ];
  for (const [provider, sentence] of cases) assert.equal(refusalOf(flags, filesWith(provider)), sentence);
  assert.equal(refusalOf(flags, filesWith()), "/c.yaml: providers is []: list at least one provider");
  assert.equal(
    refusalOf(flags, filesWith(ecr, ecr)),
    '/c.yaml: providers.name is "ecr": two providers have that name; keep one',
  );
  const [config = "", directory = ""] = flags;
  assert.match(refusalOf([config], filesWith(ecr)), /^--image-credential-provider-bin-dir is not set: set the/);
  assert.match(refusalOf([directory]), /^--image-credential-provider-config is not set: set the file/);
  assert.match(refusalOf(flags), /^--image-credential-provider-config is "\/c.yaml": there is no such file/);
});
