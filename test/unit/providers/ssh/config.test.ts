import assert from "node:assert/strict";
import { test } from "node:test";
import { readSshConfig } from "../../../../providers/ssh/config.ts";

const least = { host: "machine.example", user: "root", privateKeyFile: "/k", knownHostsFile: "/h" };

test("the least that is needed, and what the rest is then", () => {
  assert.deepEqual(readSshConfig(least), {
    host: "machine.example",
    port: 22,
    user: "root",
    login: { by: "key", privateKeyFile: "/k" },
    trust: { by: "knownHosts", file: "/h" },
    runtime: "auto",
    sudo: "auto",
    proxyJump: [],
    network: "auto",
    cri: undefined,
    docker: undefined,
  });
});

test("a machine that dials in", () => {
  const reverse = { port: 2222, hostKeyFile: "/l", authorizedKeysFile: "/a" };
  assert.deepEqual(readSshConfig({ ...least, reverse }).reverse, { address: "0.0.0.0", ...reverse });
  const refused = (given: object, message: RegExp) =>
    assert.throws(() => readSshConfig({ ...least, reverse, ...given }), { code: "invalid_argument", message });
  refused({ proxy: "socks5://p" }, /both reverse and proxy/);
  refused({ reverse: true }, /providerConfig\.reverse of the ssh provider is not a map of fields: write port/);
  refused({ reverse: { ...reverse, keys: "/k" } }, /providerConfig\.reverse\.keys is not a field/);
  refused({ reverse: { ...reverse, port: "22" } }, /providerConfig\.reverse\.port is "22", not a port/);
  refused({ reverse: { ...reverse, address: "a b" } }, /providerConfig\.reverse\.address is "a b"/);
  refused(
    { reverse: { ...reverse, hostKeyFile: "l" } },
    /providerConfig\.reverse\.hostKeyFile is "l", not an absolute/,
  );
});

test("namespaces that a tunneled node reaches", () => {
  const tunneled = { ...least, network: "tunneled" };
  assert.deepEqual(readSshConfig({ ...tunneled, serviceNamespaces: ["shop"] }).serviceNamespaces, ["shop"]);
  assert.deepEqual(readSshConfig({ ...tunneled, serviceNamespaces: [] }).serviceNamespaces, []);
  const refused = (given: object, message: RegExp) =>
    assert.throws(() => readSshConfig({ ...tunneled, ...given }), { code: "invalid_argument", message });
  refused({ serviceNamespaces: "shop" }, /serviceNamespaces is "shop", not a list of namespaces/);
  refused({ serviceNamespaces: ["Shop"] }, /serviceNamespaces is \["Shop"\], not a list/);
  refused({ serviceNamespaces: ["a"], network: "isolated" }, /serviceNamespaces limits what the link carries/);
});

test("every field", () => {
  const fingerprint = `SHA256:${"a".repeat(43)}`;
  const { login, trust, ...rest } = readSshConfig({
    host: "fd00::1",
    port: 2222,
    user: "me",
    agentSocket: "/agent",
    hostKeyFingerprints: [`${fingerprint}=`],
    hostCertificateAuthorities: [fingerprint],
    runtime: "unix:///run/containerd/containerd.sock",
    rootDir: "/var/lib/graftlet",
    sudo: "never",
    network: "routed",
    proxyJump: [{ host: "jump", user: "hop", passwordFile: "/w", hostKeyFingerprints: [fingerprint] }],
    kubernetesService: "[fd00::2]:6443",
    cri: { sharing: "shared" },
    docker: { network: "n" },
  });
  assert.deepEqual(login, { by: "agent", agentSocket: "/agent" });
  assert.deepEqual(trust, { by: "fingerprints", fingerprints: [fingerprint], authorities: [fingerprint] });
  assert.deepEqual(rest, {
    host: "fd00::1",
    port: 2222,
    user: "me",
    runtime: { socket: "/run/containerd/containerd.sock" },
    rootDir: "/var/lib/graftlet",
    sudo: "never",
    network: "routed",
    proxyJump: [
      {
        host: "jump",
        port: 22,
        user: "hop",
        login: { by: "password", passwordFile: "/w" },
        trust: { by: "fingerprints", fingerprints: [fingerprint], authorities: [] },
      },
    ],
    kubernetesService: { host: "fd00::2", port: 6443 },
    cri: { sharing: "shared" },
    docker: { network: "n" },
  });
  const withKey = readSshConfig({ ...least, passphraseFile: "/p", certificateFile: "/c" });
  const files = { privateKeyFile: "/k", passphraseFile: "/p", certificateFile: "/c" };
  assert.deepEqual(withKey.login, { by: "key", ...files });
  const withPassword = readSshConfig({ ...least, privateKeyFile: undefined, passwordFile: "/w" });
  assert.deepEqual(withPassword.login, { by: "password", passwordFile: "/w" });
  assert.deepEqual(readSshConfig({ ...least, hostKey: "trustOnFirstUse" }).trust, { by: "firstUse", file: "/h" });
});

const wrong: readonly (readonly [string, unknown, RegExp])[] = [
  ["no map", undefined, /not a map of fields: write at least host, user/],
  ["a list", [], /not a map of fields/],
  [
    "a field that is none",
    { ...least, hots: "x" },
    /providerConfig\.hots is not a field of the ssh provider: remove it/,
  ],
  ["no host", { ...least, host: undefined }, /providerConfig\.host is undefined/],
  ["a host with an option in it", { ...least, host: "a b" }, /providerConfig\.host is "a b"/],
  ["no user", { ...least, user: "" }, /providerConfig\.user is ""/],
  ["a port that is none", { ...least, port: 70_000 }, /providerConfig\.port is 70000, not a port/],
  ["a port as a text", { ...least, port: "22" }, /providerConfig\.port is "22", not a port/],
  ["no login", { ...least, privateKeyFile: undefined }, /names no way to log in: add one of/],
  ["two logins", { ...least, agentSocket: "/a" }, /has both privateKeyFile and agentSocket: keep one/],
  [
    "a passphrase for no key",
    { ...least, privateKeyFile: undefined, agentSocket: "/a", passphraseFile: "/p" },
    /opens no key/,
  ],
  [
    "a relative key file",
    { ...least, privateKeyFile: "key" },
    /providerConfig\.privateKeyFile is "key", not an absolute path/,
  ],
  [
    "a certificate for no key",
    { ...least, privateKeyFile: undefined, agentSocket: "/a", certificateFile: "/c" },
    /certificateFile certifies no key: add the privateKeyFile/,
  ],
  ["a relative certificate", { ...least, certificateFile: "c" }, /certificateFile is "c", not an absolute path/],
  ["no host key", { ...least, knownHostsFile: undefined }, /does not say how to know the machine/],
  ["two ways to know it", { ...least, hostKeyFingerprints: [] }, /both knownHostsFile and hostKeyFingerprints/],
  [
    "no fingerprint",
    { ...least, knownHostsFile: undefined, hostKeyFingerprints: ["ab:cd"] },
    /not a list of fingerprints/,
  ],
  [
    "an authority that is no fingerprint",
    { ...least, knownHostsFile: undefined, hostCertificateAuthorities: "ca.pub" },
    /hostCertificateAuthorities is "ca\.pub", not a list of fingerprints: .* for the authority's public key/,
  ],
  [
    "authorities in a file and here",
    { ...least, hostCertificateAuthorities: [] },
    /both knownHostsFile and hostCertificateAuthorities: write the authority into that file/,
  ],
  ["another word for first use", { ...least, hostKey: "any" }, /write trustOnFirstUse, or remove it/],
  [
    "first use without a file",
    { ...least, knownHostsFile: undefined, hostKey: "trustOnFirstUse" },
    /no place to keep the first key/,
  ],
  [
    "first use and fingerprints",
    { ...least, hostKey: "trustOnFirstUse", hostKeyFingerprints: [] },
    /both hostKey and hostKeyFingerprints/,
  ],
  [
    "a runtime that is none",
    { ...least, runtime: "containerd" },
    /providerConfig\.runtime is "containerd": write auto, or a socket/,
  ],
  ["a relative root directory", { ...least, rootDir: "x" }, /providerConfig\.rootDir is "x", not an absolute path/],
  ["sudo that is neither", { ...least, sudo: true }, /providerConfig\.sudo is true: write auto or never/],
  ["a network that is neither", { ...least, network: "host" }, /write auto or isolated or tunneled or routed/],
  [
    "a proxy of another kind",
    { ...least, proxy: "ftp://proxy:21" },
    /proxy is "ftp:\/\/proxy:21", not a proxy: write socks5:/,
  ],
  ["a proxy with a path", { ...least, proxy: "http://proxy:3128/way" }, /not a proxy/],
  [
    "a proxy with its password in the open",
    { ...least, proxy: "socks5://me:secret@proxy" },
    /^providerConfig\.proxy has a password: write it into a file/,
  ],
  ["a proxy's user without a password", { ...least, proxy: "http://me@proxy" }, /add proxyPasswordFile/],
  ["a password of no user", { ...least, proxy: "http://proxy", proxyPasswordFile: "/p" }, /is of no user/],
  ["a password of no proxy", { ...least, proxyPasswordFile: "/p" }, /is of no proxy: add proxy/],
  ["a way that is no list", { ...least, proxyJump: "jump" }, /proxyJump is not a list of at most 8 machines/],
  [
    "a way of nine hops",
    { ...least, proxyJump: Array.from({ length: 9 }, () => least) },
    /proxyJump is not a list of at most 8/,
  ],
  [
    "a hop that is none",
    { ...least, proxyJump: ["jump"] },
    /proxyJump\[0\] of the ssh provider is not a map of fields/,
  ],
  [
    "a hop with a field of the target's",
    { ...least, proxyJump: [least, { ...least, runtime: "auto" }] },
    /proxyJump\[1\]\.runtime is not a field/,
  ],
  [
    "a hop without a host",
    { ...least, proxyJump: [{ ...least, host: "" }] },
    /providerConfig\.proxyJump\[0\]\.host is ""/,
  ],
  [
    "a hop that nobody knows",
    { ...least, proxyJump: [{ ...least, knownHostsFile: undefined }] },
    /providerConfig\.proxyJump\[0\] does not say how to know the machine/,
  ],
  ["an API server without a port", { ...least, kubernetesService: "10.0.0.1" }, /write host:port/],
  [
    "an API server with a port that is none",
    { ...least, kubernetesService: "a:99999" },
    /kubernetesService is 99999, not a port/,
  ],
];

for (const [what, config, sentence] of wrong)
  test(`refused with a sentence: ${what}`, () => {
    assert.throws(() => readSshConfig(config), { code: "invalid_argument", message: sentence });
  });

test("a proxy's ports are those that its kind usually has", () => {
  const of = (proxy: string, more: object = {}) => readSshConfig({ ...least, proxy, ...more }).proxy;
  assert.deepEqual(of("socks5://proxy"), { scheme: "socks5", host: "proxy", port: 1080 });
  assert.deepEqual(of("http://proxy"), { scheme: "http", host: "proxy", port: 3128 });
  assert.deepEqual(of("http://proxy:80"), { scheme: "http", host: "proxy", port: 80 });
  assert.deepEqual(of("https://[2001:db8::1]:8443"), { scheme: "https", host: "2001:db8::1", port: 8443 });
  assert.deepEqual(of("socks5://me%40here@proxy:9", { proxyPasswordFile: "/p" }), {
    scheme: "socks5",
    host: "proxy",
    port: 9,
    user: "me@here",
    passwordFile: "/p",
  });
});
