const block = /-----BEGIN ([^-\n]*)-----\r?\n(?:[^\n:]+:[^\n]*\n)*([A-Za-z0-9+/=\s]*)-----END \1-----/g;
const lineLength = /.{1,64}/g;

/** The contents of PEM blocks of any type; headers and text between blocks are dropped. Pure. */
export function pemBlocks(text: string): readonly Buffer[] {
  return [...text.matchAll(block)].map(([, , base64 = ""]) => Buffer.from(base64, "base64"));
}

/** One block CERTIFICATE for each certificate in DER. Pure. */
export function pemCertificates(certificates: readonly Buffer[]): string {
  return certificates
    .map((der) => (der.toString("base64").match(lineLength) ?? []).map((line) => `${line}\n`).join(""))
    .map((lines) => `-----BEGIN CERTIFICATE-----\n${lines}-----END CERTIFICATE-----\n`)
    .join("");
}
