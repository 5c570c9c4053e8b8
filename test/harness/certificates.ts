import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { must } from "./processes.ts";

/** A certificate and its key as PEM files. */
export interface KeyPair {
  readonly cert: string;
  readonly key: string;
}

/** Who a certificate names and what for; `names` are openssl alternative names (`DNS:…`, `IP:…`). */
export interface Subject {
  readonly commonName: string;
  readonly organization?: string;
  readonly names?: readonly string[];
  readonly usage: "clientAuth" | "serverAuth";
  readonly days?: number;
}

/** The certificates of a cluster's control plane. @see https://kubernetes.io/docs/setup/best-practices/certificates/ */
export interface ClusterCertificates {
  readonly ca: KeyPair;
  readonly frontProxyCa: KeyPair;
  readonly frontProxyClient: KeyPair;
  readonly apiServer: KeyPair;
  readonly apiServerKubeletClient: KeyPair;
  readonly serviceAccounts: { readonly privateKey: string; readonly publicKey: string };
}

const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/** Makes the certificate authorities and the control plane's certificates in `dir`. `apiServerNames`: see Subject.names. */
export async function createClusterCertificates(
  dir: string,
  apiServerNames: readonly string[],
): Promise<ClusterCertificates> {
  mkdirSync(dir, { mode: 0o700 });
  const certificates = certificatesIn(dir);
  const { ca, frontProxyCa } = certificates;
  await Promise.all([
    createAuthority(ca, "kubernetes-ca"),
    createAuthority(frontProxyCa, "front-proxy-ca"),
    createSigningKey(certificates.serviceAccounts),
  ]);
  await Promise.all([
    issue(certificates.frontProxyClient, frontProxyCa, { commonName: "front-proxy-client", usage: "clientAuth" }),
    issue(certificates.apiServer, ca, { commonName: "kube-apiserver", names: apiServerNames, usage: "serverAuth" }),
    issue(certificates.apiServerKubeletClient, ca, {
      commonName: "kube-apiserver-kubelet-client",
      organization: "system:masters",
      usage: "clientAuth",
    }),
  ]);
  return certificates;
}

/** Where the control plane's certificates lie in `dir`. */
export function certificatesIn(dir: string): ClusterCertificates {
  return {
    ca: pairIn(dir, "ca"),
    frontProxyCa: pairIn(dir, "front-proxy-ca"),
    frontProxyClient: pairIn(dir, "front-proxy-client"),
    apiServer: pairIn(dir, "apiserver"),
    apiServerKubeletClient: pairIn(dir, "apiserver-kubelet-client"),
    serviceAccounts: { privateKey: join(dir, "sa.key"), publicKey: join(dir, "sa.pub") },
  };
}

/** The files `NAME.crt` and `NAME.key` in `dir`. */
export function pairIn(dir: string, name: string): KeyPair {
  return { cert: join(dir, `${name}.crt`), key: join(dir, `${name}.key`) };
}

/** Issues a certificate into the files of `pair`. */
export async function issue(pair: KeyPair, authority: KeyPair, subject: Subject): Promise<void> {
  const organization = subject.organization ? `/O=${subject.organization}` : "";
  const names = subject.names?.length ? ["-addext", `subjectAltName=${subject.names.join(",")}`] : [];
  await must([
    "openssl",
    "req",
    "-x509",
    ...newKey,
    "-CA",
    authority.cert,
    "-CAkey",
    authority.key,
    "-subj",
    `${organization}/CN=${subject.commonName}`,
    "-days",
    String(subject.days ?? 365),
    "-addext",
    "basicConstraints=critical,CA:FALSE",
    "-addext",
    "keyUsage=critical,digitalSignature",
    "-addext",
    `extendedKeyUsage=${subject.usage}`,
    ...names,
    "-keyout",
    pair.key,
    "-out",
    pair.cert,
  ]);
  chmodSync(pair.key, 0o600);
}

async function createAuthority(pair: KeyPair, commonName: string): Promise<void> {
  await must([
    "openssl",
    "req",
    "-x509",
    ...newKey,
    "-subj",
    `/CN=${commonName}`,
    "-days",
    "3650",
    "-addext",
    "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
    "-keyout",
    pair.key,
    "-out",
    pair.cert,
  ]);
}

async function createSigningKey({ privateKey, publicKey }: ClusterCertificates["serviceAccounts"]): Promise<void> {
  writeFileSync(privateKey, await must(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"]), {
    mode: 0o600,
  });
  await must(["openssl", "ec", "-in", privateKey, "-pubout", "-out", publicKey]);
}
