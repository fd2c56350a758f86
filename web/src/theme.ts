// Light or dark: as the system has it, unless somebody chose.

import { useEffect, useState } from "preact/hooks";

export type Theme = "system" | "light" | "dark";
const order: Theme[] = ["system", "light", "dark"];
const dark = matchMedia("(prefers-color-scheme: dark)");

function stored(): Theme {
  const text = localStorage.getItem("theme") as Theme | null;
  return text && order.includes(text) ? text : "system";
}

function show(theme: Theme): void {
  const is = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
  document.documentElement.dataset["theme"] = is;
  window.dispatchEvent(new Event("theme"));
}

show(stored());
dark.addEventListener("change", () => show(stored()));

export function nextTheme(): void {
  const next = order[(order.indexOf(stored()) + 1) % order.length] ?? "system";
  localStorage.setItem("theme", next);
  show(next);
}

/** useTheme is what was chosen; it changes when the colours do. */
export function useTheme(): Theme {
  const [theme, set] = useState(stored);
  const [, turn] = useState(0);
  useEffect(() => {
    const changed = () => {
      set(stored());
      turn((n) => n + 1);
    };
    window.addEventListener("theme", changed);
    return () => window.removeEventListener("theme", changed);
  }, []);
  return theme;
}
