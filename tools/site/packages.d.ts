// What make site uses of its packages, which make check does without.

declare module "markdown-it-anchor" {
  interface Token {
    readonly type: string;
    readonly children: readonly Token[] | null;
    attrGet(name: string): string | null;
    attrSet(name: string, value: string): void;
  }
  interface State {
    readonly tokens: readonly Token[];
    readonly env: { readonly page: { readonly inputPath: string } };
  }
  /** markdown-it's parser. */
  export interface Markdown {
    readonly core: { readonly ruler: { push(name: string, rule: (state: State) => void): void } };
    readonly renderer: { readonly rules: Record<string, () => string> };
    use(plugin: (markdown: unknown, options: object) => void, options: object): unknown;
  }
  const anchor: ((markdown: unknown, options: object) => void) & {
    readonly permalink: { headerLink(): unknown };
  };
  export default anchor;
}

declare module "@11ty/eleventy" {
  import type { Markdown } from "markdown-it-anchor";
  interface PageOf {
    readonly page: { readonly inputPath: string };
  }
  interface Site {
    readonly ignores: Set<string>;
    setTemplateFormats(formats: readonly string[]): void;
    addGlobalData(name: string, value: () => (data: PageOf) => string | false): void;
    amendLibrary(name: "md", amend: (markdown: Markdown) => void): void;
    addTransform(name: string, transform: (this: PageOf, content: string) => string): void;
    addPassthroughCopy(paths: string | Readonly<Record<string, string>>): void;
  }
  interface Options {
    readonly configPath: false;
    readonly quietMode: boolean;
    readonly config: (site: Site) => { readonly markdownTemplateEngine: false };
  }
  export class Eleventy {
    constructor(input: string, output: string, options: Options);
    write(): Promise<unknown>;
  }
}
