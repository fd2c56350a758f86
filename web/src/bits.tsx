// Small parts that many views have.

import type { ComponentChildren } from "preact";
import { createContext } from "preact";
import { useContext, useState } from "preact/hooks";
import type { Grade } from "./api";
import { link } from "./route";

/** Flags are what commands need to reach the same API. */
export const Flags = createContext("");

export function GradeMark({ grade }: { grade: Grade | undefined }) {
  return grade ? <span class={"mark " + grade}>{grade}</span> : <span class="mark well">ok</span>;
}

export function Code({ code }: { code: string }) {
  return <a class="code" href={link(["causes", code])}>{code}</a>;
}

/** quote is a word as a shell reads it. */
export function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'";
}

/** fairway is a command line of fairway's; kubectl one of kubectl's. */
export const fairway = (...words: string[]) => ["fairway", ...words.map(quote)].join(" ");
export const kubectl = (...words: string[]) => ["kubectl", ...words.map(quote)].join(" ");

export function Commands({ list, label }: { list: string[]; label: string }) {
  return (
    <ul class="commands" data-commands aria-label={label}>
      {list.map((c) => <li key={c}><Command text={c} /></li>)}
    </ul>
  );
}

export function Command({ text }: { text: string }) {
  const flags = useContext(Flags);
  const [copied, set] = useState(false);
  const whole = flags ? text + " " + flags : text;
  const copy = async (e: Event) => {
    e.stopPropagation();
    await navigator.clipboard.writeText(whole);
    set(true);
    setTimeout(() => set(false), 1500);
  };
  return (
    <span class="command">
      <code>{text}</code>
      <button type="button" data-copy onClick={(e) => void copy(e)} aria-label={"Copy: " + whole} title="Copy this command">
        {copied ? "copied" : "copy"}
      </button>
    </span>
  );
}

export function Failed({ error }: { error: string | undefined }) {
  return error ? <p class="banner bad" role="alert">{error}</p> : null;
}

export function Nothing({ children }: { children: ComponentChildren }) {
  return <p class="nothing">{children}</p>;
}

export function Section({ title, aside, children }: { title: string; aside?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section>
      <header><h2>{title}</h2>{aside}</header>
      {children}
    </section>
  );
}

export function clock(time: string): string {
  const d = new Date(time);
  return d.toLocaleTimeString("en-GB") + "." + String(d.getMilliseconds()).padStart(3, "0");
}

export function ago(time: string): string {
  const s = Math.max(0, Math.round((Date.now() - new Date(time).getTime()) / 1000));
  if (s < 60) return s + " s ago";
  if (s < 3600) return Math.round(s / 60) + " min ago";
  return s < 86400 ? Math.round(s / 3600) + " h ago" : Math.round(s / 86400) + " d ago";
}

export function took(seconds: number): string {
  return seconds < 1 ? (seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0) + " ms" : seconds.toFixed(1) + " s";
}

export function size(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let n = bytes, unit = 0;
  for (; n >= 999.5 && unit < units.length - 1; unit++) n /= 1000;
  return (unit === 0 || n >= 99.95 ? n.toFixed(0) : n.toFixed(1)) + " " + units[unit];
}

export function plural(n: number, what: string): string {
  return n.toLocaleString("en") + " " + what + (n === 1 ? "" : "s");
}
