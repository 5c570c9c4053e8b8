import type { Algorithms, CompressionAlgorithm, KexAlgorithm } from "ssh2";

/** Key exchange algorithms for targets. Group exchange is excluded: before the host key is verified the server could choose a large group,
 *  which would block the process for a second. Fixed groups of more than 4096 bits are excluded for the same reason. */
const keyExchanges: KexAlgorithm[] = [
  "curve25519-sha256@libssh.org",
  "curve25519-sha256",
  "ecdh-sha2-nistp256",
  "ecdh-sha2-nistp384",
  "ecdh-sha2-nistp521",
  "diffie-hellman-group14-sha256",
  "diffie-hellman-group16-sha512",
];

/** Compression is disabled, because a packet of 30 KB could decompress to 30 MiB. */
const compress: CompressionAlgorithm[] = ["none"];

/** Algorithms for connections to targets. Every OpenSSH since 6.5 supports some of each kind. */
export const targetAlgorithms: Algorithms = { kex: keyExchanges, compress };

/** Algorithms of the reverse-tunnel listener, restricted to cheap ones since unauthenticated peers may connect to it. */
export const listenerAlgorithms: Algorithms = {
  kex: ["curve25519-sha256", "curve25519-sha256@libssh.org", "ecdh-sha2-nistp256"],
  cipher: [
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes256-ctr",
  ],
  hmac: ["hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512"],
  compress,
};
