/** Limitations of a running tunnel or publisher: reasons of events. */
export type WayLack = "ConnectionsNotCarried" | "DatagramsNotCarried" | "PodNetworkOverlaps" | "ServicesNotCarried";
export type TellLack = (reason: WayLack, message: string) => void;

/** Reports each limitation when it first occurs and whenever its message changes. */
export function createNews(tell: TellLack): (reason: WayLack, message: string | undefined) => void {
  const said = new Map<WayLack, string | undefined>();
  return (reason, message) => {
    if (message !== undefined && message !== said.get(reason)) tell(reason, message);
    said.set(reason, message);
  };
}
