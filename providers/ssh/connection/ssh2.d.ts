// What certificates need of ssh2 beside its index.
declare module "ssh2/lib/protocol/utils.js" {
  const utils: {
    /** A signature as node:crypto makes it, in the form that goes into SSH's wire format. */
    convertSignature(signature: Buffer, keyType: string): Buffer | false;
    /** Sends a packet, or queues it during a key exchange. */
    sendPacket(protocol: object, packet: Buffer): boolean;
  };
  export default utils;
}
