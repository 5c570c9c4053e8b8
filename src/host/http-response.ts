/** A response whose body is read on demand. */
export interface OpenResponse extends Disposable {
  readonly status: number;
  /** Undefined without a Location header. */
  readonly location: string | undefined;
  /** Content length; undefined if unknown. */
  readonly length: number | undefined;
  /** @throws Error with Go's text. */
  read(maxBytes: number): Promise<Buffer>;
}
