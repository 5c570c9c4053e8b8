/** Allowed signature algorithms by key type. RSA with SHA-1 is excluded. */
export const signatureAlgorithms: ReadonlyMap<string, readonly string[]> = new Map([
  ["ssh-ed25519", ["ssh-ed25519"]],
  ["ecdsa-sha2-nistp256", ["ecdsa-sha2-nistp256"]],
  ["ecdsa-sha2-nistp384", ["ecdsa-sha2-nistp384"]],
  ["ecdsa-sha2-nistp521", ["ecdsa-sha2-nistp521"]],
  ["ssh-rsa", ["rsa-sha2-512", "rsa-sha2-256"]],
]);

const ofCertificate = "-cert-v01@openssh.com";

/** Returns the certificate variant of a key type or signature algorithm. */
export function certificateName(plain: string): string {
  return plain + ofCertificate;
}

/** Returns the plain key type or algorithm for a certificate's name; undefined for any other name. */
export function plainName(name: string): string | undefined {
  return name.endsWith(ofCertificate) ? name.slice(0, -ofCertificate.length) : undefined;
}
