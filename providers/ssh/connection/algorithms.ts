import type { Algorithms, CompressionAlgorithm, KexAlgorithm } from "ssh2";

/** Key exchanges with a target. None lets the server choose the group: a large one, which ssh2 takes before it knows the host key, costs a
 *  second of the process. Groups of more than 4096 bits cost too much as well. */
const keyExchanges: KexAlgorithm[] = [
  "curve25519-sha256@libssh.org",
  "curve25519-sha256",
  "ecdh-sha2-nistp256",
  "ecdh-sha2-nistp384",
  "ecdh-sha2-nistp521",
  "diffie-hellman-group14-sha256",
  "diffie-hellman-group16-sha512",
];

/** No compression: a packet of 30 KB could become 30 MiB. */
const compress: CompressionAlgorithm[] = ["none"];

/** Algorithms for connections to targets. Every OpenSSH since 6.5 has some of each kind. */
export const targetAlgorithms: Algorithms = { kex: keyExchanges, compress };

/** Algorithms of the listener for machines, which anybody may connect to: the cheap ones alone. */
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
