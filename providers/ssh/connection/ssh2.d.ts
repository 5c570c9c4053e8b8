// Internal functions of ssh2 that are used for certificates.
declare module "ssh2/lib/protocol/utils.js" {
  const utils: {
    /** Converts a signature of node:crypto to SSH's wire format. */
    convertSignature(signature: Buffer, keyType: string): Buffer | false;
    /** Sends a packet, or queues it during a key exchange. */
    sendPacket(protocol: object, packet: Buffer): boolean;
  };
  export default utils;
}
