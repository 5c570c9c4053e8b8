import { isIP } from "node:net";
import { Duplex } from "node:stream";
import { type TLSSocket, connect } from "node:tls";
import { addAbortListener } from "node:events";

/** A failed handshake, with the text of Go's crypto/tls. */
export class TlsHandshakeError extends Error {
  /** True if the server speaks plain HTTP. */
  readonly spokeHttp: boolean;
  constructor(message: string, spokeHttp: boolean, options?: ErrorOptions) {
    super(message, options);
    this.spokeHttp = spokeHttp;
  }
}

/** Cipher suites that Go's clients offer. @see https://pkg.go.dev/crypto/tls#CipherSuites */
const ciphers = [
  "TLS_AES_128_GCM_SHA256",
  "TLS_AES_256_GCM_SHA384",
  "TLS_CHACHA20_POLY1305_SHA256",
  "ECDHE-ECDSA-AES128-GCM-SHA256",
  "ECDHE-RSA-AES128-GCM-SHA256",
  "ECDHE-ECDSA-AES256-GCM-SHA384",
  "ECDHE-RSA-AES256-GCM-SHA384",
  "ECDHE-ECDSA-CHACHA20-POLY1305",
  "ECDHE-RSA-CHACHA20-POLY1305",
  "ECDHE-ECDSA-AES128-SHA",
  "ECDHE-RSA-AES128-SHA",
  "ECDHE-ECDSA-AES256-SHA",
  "ECDHE-RSA-AES256-SHA",
].join(":");

/** Starts TLS 1.2 or 1.3 on a connection without verifying the server's certificate. The connection is closed with the TLS socket.
 *  @param protocols offered via ALPN. @throws TlsHandshakeError; the connection's error. */
export async function overTls(
  connection: Duplex,
  host: string,
  protocols: readonly string[],
  signal: AbortSignal,
): Promise<TLSSocket> {
  const heard = new RecordingStream(connection);
  const name = host.replace(/%[^%]*$/, "");
  const tls = connect({
    socket: heard,
    rejectUnauthorized: false,
    minVersion: "TLSv1.2",
    ciphers,
    ...(protocols.length > 0 && { ALPNProtocols: [...protocols] }),
    ...(isIP(name) === 0 && { servername: host.replace(/\.+$/, "") }),
  });
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  using _ = addAbortListener(signal, () => reject(signal.reason));
  tls.once("secureConnect", resolve);
  tls.on("error", reject).once("close", () => reject(new Error("EOF")));
  try {
    await promise;
    return tls;
  } catch (error) {
    tls.destroy();
    throw handshakeError(heard, error);
  }
}

/** Bytes of the server's first record that identify its protocol. */
const identifyingBytes = 11;

/** A connection that records its first received bytes, to identify a server that does not speak TLS. */
class RecordingStream extends Duplex {
  first = Buffer.alloc(0);
  bytes = 0;
  readonly #connection: Duplex;
  constructor(connection: Duplex) {
    super({ allowHalfOpen: true });
    this.#connection = connection;
    connection.on("data", (chunk: Buffer) => {
      this.bytes += chunk.length;
      if (this.first.length < identifyingBytes)
        this.first = Buffer.concat([this.first, chunk.subarray(0, identifyingBytes - this.first.length)]);
      if (!this.push(chunk)) connection.pause();
    });
    // Data received before the end is still read.
    let hasEnded = false;
    const end = () => {
      if (!hasEnded) this.push(null);
      hasEnded = true;
    };
    connection.once("end", end).once("close", end);
    connection.on("error", (error) => this.destroy(error));
    this.on("error", () => {});
  }
  override _read(): void {
    this.#connection.resume();
  }
  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.#connection.write(chunk, done);
  }
  override _final(done: (error?: Error | null) => void): void {
    this.#connection.end(() => done());
  }
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#connection.destroy();
    done(error);
  }
}

const [alertRecord, handshakeRecord, oldRecord] = [21, 22, 0x80];
const [fatal, serverHello] = [2, 2];
const maxRecord = 16384 + 2048;
const maxHandshake = 65536;

function handshakeError({ first, bytes }: RecordingStream, error: unknown): TlsHandshakeError {
  const reported = first.length < 5 ? undefined : errorOfRecord(first);
  const spokeHttp = reported === notTls && first.toString("latin1").startsWith("HTTP/");
  const text = spokeHttp ? "http: server gave HTTP response to HTTPS client" : (reported ?? alertOf(error));
  if (text !== undefined) return new TlsHandshakeError(text, spokeHttp, { cause: error });
  const hasEnded = error instanceof Error && !("syscall" in error);
  if (!hasEnded) throw error;
  const endsWithRecord = bytes === 0 || (first.length >= 5 && bytes === 5 + first.readUInt16BE(3));
  return new TlsHandshakeError(endsWithRecord ? "EOF" : "unexpected EOF", false, { cause: error });
}

const notTls = "tls: first record does not look like a TLS handshake";

/** Derives the cause of a failed handshake from the server's first record; undefined if the record is valid. */
function errorOfRecord(record: Buffer): string | undefined {
  const [type = 0, , , , , level = 0, description = 0] = record;
  const version = record.readUInt16BE(1);
  const length = record.readUInt16BE(3);
  if (type === oldRecord) return "tls: unsupported SSLv2 handshake received";
  if ((type !== alertRecord && type !== handshakeRecord) || version >= 0x1000) return notTls;
  if (length > maxRecord) return `tls: oversized record received with length ${length}`;
  if (type === alertRecord && record.length >= 7 && level === fatal) return alertText(description);
  if (type !== handshakeRecord || record.length < 9) return undefined;
  const handshake = record.readUIntBE(6, 3);
  if (handshake > maxHandshake)
    return `tls: handshake message of length ${handshake} bytes exceeds maximum of ${maxHandshake} bytes`;
  if (record[5] !== serverHello || record.length < identifyingBytes) return undefined;
  const selected = record.readUInt16BE(9);
  if (selected >= 0x0303) return undefined;
  return `tls: server selected unsupported protocol version ${selected.toString(16)}`;
}

/** TLS alerts: OpenSSL's name, and Go's text if it differs. */
const alerts: Readonly<Record<number, readonly [name: string, text?: string]>> = {
  10: ["UNEXPECTED_MESSAGE"],
  20: ["BAD_RECORD_MAC", "bad record MAC"],
  21: ["DECRYPTION_FAILED"],
  22: ["RECORD_OVERFLOW"],
  30: ["DECOMPRESSION_FAILURE"],
  40: ["HANDSHAKE_FAILURE"],
  42: ["BAD_CERTIFICATE"],
  43: ["UNSUPPORTED_CERTIFICATE"],
  44: ["CERTIFICATE_REVOKED", "revoked certificate"],
  45: ["CERTIFICATE_EXPIRED", "expired certificate"],
  46: ["CERTIFICATE_UNKNOWN", "unknown certificate"],
  47: ["ILLEGAL_PARAMETER"],
  48: ["UNKNOWN_CA", "unknown certificate authority"],
  49: ["ACCESS_DENIED"],
  50: ["DECODE_ERROR", "error decoding message"],
  51: ["DECRYPT_ERROR", "error decrypting message"],
  60: ["EXPORT_RESTRICTION"],
  70: ["PROTOCOL_VERSION", "protocol version not supported"],
  71: ["INSUFFICIENT_SECURITY", "insufficient security level"],
  80: ["INTERNAL_ERROR"],
  86: ["INAPPROPRIATE_FALLBACK"],
  90: ["USER_CANCELED"],
  100: ["NO_RENEGOTIATION"],
  109: ["MISSING_EXTENSION"],
  110: ["UNSUPPORTED_EXTENSION"],
  112: ["UNRECOGNIZED_NAME"],
  113: ["BAD_CERTIFICATE_STATUS_RESPONSE"],
  115: ["UNKNOWN_PSK_IDENTITY", "unknown PSK identity"],
  116: ["CERTIFICATE_REQUIRED"],
  120: ["NO_APPLICATION_PROTOCOL"],
};

function alertText(number: number): string {
  const known = alerts[number];
  const text = known ? (known[1] ?? known[0].toLowerCase().replaceAll("_", " ")) : `alert(${number})`;
  return `remote error: tls: ${text}`;
}

/** Text of a TLS alert that the server sent; undefined for any other error. */
export function alertOf(error: unknown): string | undefined {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const name = /^ERR_SSL_(?:SSLV3|TLSV1|TLSV13|SSL\/TLS)_(?:ALERT_)?(\w+)$/.exec(code)?.[1];
  const number = Object.keys(alerts).find((key) => alerts[Number(key)]?.[0] === name);
  return number === undefined ? undefined : alertText(Number(number));
}
