/** An answer whose body is read on request. */
export interface OpenAnswer extends Disposable {
  readonly status: number;
  /** Undefined where the server names no place. */
  readonly location: string | undefined;
  /** Bytes of the body; undefined where they are not known before. */
  readonly length: number | undefined;
  /** @throws Error with Go's text. */
  read(maxBytes: number): Promise<Buffer>;
}
