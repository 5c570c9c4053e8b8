/** Encoding of single messages, which the package has without types. */
declare module "dbus-native/lib/message.js" {
  import type { Message } from "dbus-native";
  export function marshall(message: Message): Buffer;
  export function unmarshall(bytes: Uint8Array): Message;
}
