// Elements are made here, and text only ever goes in as text: what pods and machines are called cannot become markup.

export interface Made {
  readonly class?: string;
  readonly text?: string;
  readonly title?: string;
}

/** An element with its class, its text and its children. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  { class: name, text, title }: Made = {},
  children: readonly (Node | undefined)[] = [],
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  if (title) element.title = title;
  element.append(...children.filter((child) => child !== undefined));
  return element;
}

/** An element of the page's HTML. @throws if the page has none. */
export function part(id: string): HTMLElement {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element;
}

/** Sets an element's text if it is another one. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
