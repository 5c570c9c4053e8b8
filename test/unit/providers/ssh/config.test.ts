import assert from "node:assert/strict";
import { test } from "node:test";
import { readSshConfig } from "../../../../providers/ssh/config.ts";

const least = { host: "machine.example", user: "root", privateKeyFile: "/k", knownHostsFile: "/h" };

test("applies defaults to a minimal configuration", () => {
  assert.deepEqual(readSshConfig(least), {
    host: "machine.example",
    port: 22,
    user: "root",
    login: { kind: "key", privateKeyFile: "/k" },
    trust: { kind: "knownHosts", file: "/h" },
    runtime: "auto",
    sudo: "auto",
    proxyJump: [],
    network: "auto",
    cri: undefined,
    docker: undefined,
  });
});

test("reads the settings of a reverse tunnel", () => {
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

test("reads serviceNamespaces of a tunneled node", () => {
  const tunneled = { ...least, network: "tunneled" };
  assert.deepEqual(readSshConfig({ ...tunneled, serviceNamespaces: ["shop"] }).serviceNamespaces, ["shop"]);
  assert.deepEqual(readSshConfig({ ...tunneled, serviceNamespaces: [] }).serviceNamespaces, []);
  const refused = (given: object, message: RegExp) =>
    assert.throws(() => readSshConfig({ ...tunneled, ...given }), { code: "invalid_argument", message });
  refused({ serviceNamespaces: "shop" }, /serviceNamespaces is "shop", not a list of namespaces/);
  refused({ serviceNamespaces: ["Shop"] }, /serviceNamespaces is \["Shop"\], not a list/);
  refused({ serviceNamespaces: ["a"], network: "isolated" }, /serviceNamespaces applies to tunneled nodes only/);
});

test("reads every field", () => {
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
  assert.deepEqual(login, { kind: "agent", agentSocket: "/agent" });
  assert.deepEqual(trust, { kind: "fingerprints", fingerprints: [fingerprint], authorities: [fingerprint] });
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
        login: { kind: "password", passwordFile: "/w" },
        trust: { kind: "fingerprints", fingerprints: [fingerprint], authorities: [] },
      },
    ],
    kubernetesService: { host: "fd00::2", port: 6443 },
    cri: { sharing: "shared" },
    docker: { network: "n" },
  });
  const withKey = readSshConfig({ ...least, passphraseFile: "/p", certificateFile: "/c" });
  const files = { privateKeyFile: "/k", passphraseFile: "/p", certificateFile: "/c" };
  assert.deepEqual(withKey.login, { kind: "key", ...files });
  const withPassword = readSshConfig({ ...least, privateKeyFile: undefined, passwordFile: "/w" });
  assert.deepEqual(withPassword.login, { kind: "password", passwordFile: "/w" });
  assert.deepEqual(readSshConfig({ ...least, hostKey: "trustOnFirstUse" }).trust, { kind: "firstUse", file: "/h" });
});

const wrong: readonly (readonly [string, unknown, RegExp])[] = [
  ["a missing configuration", undefined, /not a map of fields: write at least host, user/],
  ["a list", [], /not a map of fields/],
  ["an unknown field", { ...least, hots: "x" }, /providerConfig\.hots is not a field of the ssh provider: remove it/],
  ["a missing host", { ...least, host: undefined }, /providerConfig\.host is undefined/],
  ["an invalid host", { ...least, host: "a b" }, /providerConfig\.host is "a b"/],
  ["an empty user", { ...least, user: "" }, /providerConfig\.user is ""/],
  ["an invalid port", { ...least, port: 70_000 }, /providerConfig\.port is 70000, not a port/],
  ["a port as a string", { ...least, port: "22" }, /providerConfig\.port is "22", not a port/],
  ["missing credentials", { ...least, privateKeyFile: undefined }, /has no credentials: add one of/],
  ["two kinds of credentials", { ...least, agentSocket: "/a" }, /has both privateKeyFile and agentSocket: keep one/],
  [
    "a passphrase without a key",
    { ...least, privateKeyFile: undefined, agentSocket: "/a", passphraseFile: "/p" },
    /passphraseFile has no key to decrypt/,
  ],
  [
    "a relative key file",
    { ...least, privateKeyFile: "key" },
    /providerConfig\.privateKeyFile is "key", not an absolute path/,
  ],
  [
    "a certificate without a key",
    { ...least, privateKeyFile: undefined, agentSocket: "/a", certificateFile: "/c" },
    /certificateFile has no key to certify: add the privateKeyFile/,
  ],
  ["a relative certificate", { ...least, certificateFile: "c" }, /certificateFile is "c", not an absolute path/],
  ["missing host-key verification", { ...least, knownHostsFile: undefined }, /does not say how to verify the host key/],
  [
    "two kinds of host-key verification",
    { ...least, hostKeyFingerprints: [] },
    /both knownHostsFile and hostKeyFingerprints/,
  ],
  [
    "an invalid fingerprint",
    { ...least, knownHostsFile: undefined, hostKeyFingerprints: ["ab:cd"] },
    /not a list of fingerprints/,
  ],
  [
    "an authority that is not a fingerprint",
    { ...least, knownHostsFile: undefined, hostCertificateAuthorities: "ca.pub" },
    /hostCertificateAuthorities is "ca\.pub", not a list of fingerprints: .* for the authority's public key/,
  ],
  [
    "authorities in addition to a known_hosts file",
    { ...least, hostCertificateAuthorities: [] },
    /both knownHostsFile and hostCertificateAuthorities: write the authority into that file/,
  ],
  ["an unknown value of hostKey", { ...least, hostKey: "any" }, /write trustOnFirstUse, or remove it/],
  [
    "trust on first use without a file",
    { ...least, knownHostsFile: undefined, hostKey: "trustOnFirstUse" },
    /has no file to store the first key in/,
  ],
  [
    "trust on first use with fingerprints",
    { ...least, hostKey: "trustOnFirstUse", hostKeyFingerprints: [] },
    /both hostKey and hostKeyFingerprints/,
  ],
  [
    "an invalid runtime",
    { ...least, runtime: "containerd" },
    /providerConfig\.runtime is "containerd": write auto, or a socket/,
  ],
  ["a relative root directory", { ...least, rootDir: "x" }, /providerConfig\.rootDir is "x", not an absolute path/],
  ["an invalid sudo", { ...least, sudo: true }, /providerConfig\.sudo is true: write auto or never/],
  ["an unknown network", { ...least, network: "host" }, /write auto or isolated or tunneled or routed/],
  [
    "a proxy with an unsupported scheme",
    { ...least, proxy: "ftp://proxy:21" },
    /proxy is "ftp:\/\/proxy:21", not a proxy: write socks5:/,
  ],
  ["a proxy with a path", { ...least, proxy: "http://proxy:3128/way" }, /not a proxy/],
  [
    "a proxy that contains its password",
    { ...least, proxy: "socks5://me:secret@proxy" },
    /^providerConfig\.proxy contains a password: write it into a file/,
  ],
  ["a proxy with a user but no password", { ...least, proxy: "http://me@proxy" }, /add proxyPasswordFile/],
  [
    "a proxy password without a user",
    { ...least, proxy: "http://proxy", proxyPasswordFile: "/p" },
    /is set without a user/,
  ],
  ["a proxy password without a proxy", { ...least, proxyPasswordFile: "/p" }, /is set without proxy: add proxy/],
  [
    "a proxyJump that is not a list",
    { ...least, proxyJump: "jump" },
    /proxyJump is not a list of at most 8 jump hosts/,
  ],
  [
    "nine jump hosts",
    { ...least, proxyJump: Array.from({ length: 9 }, () => least) },
    /proxyJump is not a list of at most 8/,
  ],
  [
    "a jump host that is not a map",
    { ...least, proxyJump: ["jump"] },
    /proxyJump\[0\] of the ssh provider is not a map of fields/,
  ],
  [
    "a jump host with a field of the target",
    { ...least, proxyJump: [least, { ...least, runtime: "auto" }] },
    /proxyJump\[1\]\.runtime is not a field/,
  ],
  [
    "a jump host without a host",
    { ...least, proxyJump: [{ ...least, host: "" }] },
    /providerConfig\.proxyJump\[0\]\.host is ""/,
  ],
  [
    "a jump host without host-key verification",
    { ...least, proxyJump: [{ ...least, knownHostsFile: undefined }] },
    /providerConfig\.proxyJump\[0\] does not say how to verify the host key/,
  ],
  ["an API server without a port", { ...least, kubernetesService: "10.0.0.1" }, /write host:port/],
  [
    "an API server with an invalid port",
    { ...least, kubernetesService: "a:99999" },
    /kubernetesService is 99999, not a port/,
  ],
];

for (const [what, config, sentence] of wrong)
  test(`rejects ${what} with a sentence`, () => {
    assert.throws(() => readSshConfig(config), { code: "invalid_argument", message: sentence });
  });

test("uses the default port of the proxy's scheme", () => {
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
