/** A box takes a place in the order of the Tab key only while there is something to scroll. */
export function scrollable(element: HTMLElement): () => void {
  const look = (): void => {
    const more =
      element.scrollWidth > element.clientWidth + 1 || element.scrollHeight > element.clientHeight + 1;
    if (more) element.tabIndex = 0;
    else element.removeAttribute("tabindex");
  };
  const sizes = new ResizeObserver(look);
  const changes = new MutationObserver(look);
  sizes.observe(element);
  changes.observe(element, { childList: true, characterData: true, subtree: true });
  look();
  return () => {
    sizes.disconnect();
    changes.disconnect();
  };
}
