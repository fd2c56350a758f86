// The keyboard. Moving in lists moves the focus, so that the browser's own keys
// (enter, tab) go on working.

import { go, link } from "./route";
import { nextTheme } from "./theme";

const places: Record<string, string> = { p: "problems", s: "services", n: "nodes", c: "changes", f: "flows" };

/** Mover is a list that rows come and go in: it moves the focus by itself. */
export interface Mover { move(by: number): void }
let mover: Mover | undefined;
export function setMover(m: Mover | undefined): void {
  mover = m;
}

/** step moves the focus to the next thing that can be opened, of all that is shown. */
function step(by: number): void {
  if (mover) return mover.move(by);
  const all = [...document.querySelectorAll<HTMLElement>("main [data-item]")];
  const at = all.findIndex((e) => e === document.activeElement || e.contains(document.activeElement));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/** copyNear copies the first command near the focus, or of the page. */
function copyNear(): void {
  const near = document.activeElement?.closest("[data-commands]") ?? document.querySelector("main [data-commands]");
  near?.querySelector<HTMLButtonElement>("button[data-copy]")?.click();
}

export function keyboard(help: () => void): () => void {
  let waiting = 0; // until when a key behind "g" counts
  const pressed = (e: KeyboardEvent) => {
    const field = e.target instanceof HTMLElement && e.target.closest("input, select, textarea");
    const open = document.querySelector("dialog[open]");
    if (e.ctrlKey || e.metaKey || e.altKey || open) return;
    if (e.key === "Escape") {
      escape(field instanceof HTMLInputElement ? field : undefined);
      return;
    }
    if (field) return;
    if (waiting > Date.now()) {
      waiting = 0;
      const place = places[e.key];
      if (place) {
        go(link([place]));
        e.preventDefault();
        return;
      }
    }
    const keys: Record<string, () => void> = {
      "/": () => document.querySelector<HTMLInputElement>("#search")?.select(),
      j: () => step(1), k: () => step(-1), c: copyNear, t: nextTheme, "?": help,
      g: () => { waiting = Date.now() + 1500; },
    };
    const act = keys[e.key];
    if (!act) return;
    e.preventDefault();
    act();
  };
  window.addEventListener("keydown", pressed);
  return () => window.removeEventListener("keydown", pressed);
}

/** escape leaves a field, then a Service for the list that it is in. */
function escape(field: HTMLInputElement | undefined): void {
  if (field?.id === "search" && field.value) {
    field.value = "";
    field.dispatchEvent(new Event("input", { bubbles: true }));
    return;
  }
  if (field) {
    field.blur();
    return;
  }
  if (location.hash.split("/").length > 2) history.length > 1 ? history.back() : go(link(["services"]));
}
