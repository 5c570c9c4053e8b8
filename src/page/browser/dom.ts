// Text is only set as text content, so that names of pods and machines cannot become markup.

/** Creates an element with its class, text and children. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  { class: name, text, title }: { readonly class?: string; readonly text?: string; readonly title?: string } = {},
  children: readonly (Node | undefined)[] = [],
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  if (title) element.title = title;
  element.append(...children.filter((child) => child !== undefined));
  return element;
}

/** Returns an element of the page's HTML by ID. @throws if it does not exist. */
export function part(id: string): HTMLElement {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element;
}

/** Sets an element's text if it differs. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
