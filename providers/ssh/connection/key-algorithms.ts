/** The algorithms by which a key of each type may sign. RSA with SHA-1 is not among them. */
export const signatureAlgorithms: ReadonlyMap<string, readonly string[]> = new Map([
  ["ssh-ed25519", ["ssh-ed25519"]],
  ["ecdsa-sha2-nistp256", ["ecdsa-sha2-nistp256"]],
  ["ecdsa-sha2-nistp384", ["ecdsa-sha2-nistp384"]],
  ["ecdsa-sha2-nistp521", ["ecdsa-sha2-nistp521"]],
  ["ssh-rsa", ["rsa-sha2-512", "rsa-sha2-256"]],
]);

const ofCertificate = "-cert-v01@openssh.com";

/** The name that a key's type, or its algorithm, has when a certificate goes with the key. */
export function certificateName(plain: string): string {
  return plain + ofCertificate;
}

/** The key's own type or algorithm; undefined for a name that is no certificate's. */
export function plainName(name: string): string | undefined {
  return name.endsWith(ofCertificate) ? name.slice(0, -ofCertificate.length) : undefined;
}
