// What the back end says has changed, and data that is asked for again then.

import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "./api";

type Topic = "services" | "nodes" | "changes" | "state";
type Listener = (topics: Set<string>) => void;

const listeners = new Set<Listener>();
const states = new Set<(connected: boolean) => void>();
let connected = true;

/** listen opens the one stream of changes. The browser opens it again by itself. */
export function listen(): void {
  const source = new EventSource("/api/v1/events");
  let first = true;
  source.addEventListener("hello", () => {
    say(true);
    if (!first) for (const l of listeners) l(new Set(["services", "nodes", "changes", "state"]));
    first = false;
  });
  source.addEventListener("changed", (e) => {
    const topics = new Set(JSON.parse((e as MessageEvent<string>).data) as string[]);
    for (const l of listeners) l(topics);
  });
  source.addEventListener("error", () => say(false));
}

function say(now: boolean): void {
  connected = now;
  for (const s of states) s(now);
}

/** useConnected tells whether the stream is open. */
export function useConnected(): boolean {
  const [is, set] = useState(connected);
  useEffect(() => {
    states.add(set);
    return () => void states.delete(set);
  }, []);
  return is;
}

/** useChange calls back when one of the topics changed, at most once in a while. */
export function useChange(topics: Topic[], changed: () => void): void {
  const latest = useRef(changed);
  latest.current = changed;
  useEffect(() => {
    let timer: number | undefined;
    const listener: Listener = (of) => {
      if (timer === undefined && topics.some((t) => of.has(t))) {
        timer = window.setTimeout(() => {
          timer = undefined;
          latest.current();
        }, 100);
      }
    };
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
      window.clearTimeout(timer);
    };
  }, [topics.join()]);
}

/** useData asks at a path, and again when one of the topics changed. What was there
 * stays until there is something newer. */
export function useData<T>(path: string, topics: Topic[]): { data?: T; error?: string; again: () => void } {
  const [state, set] = useState<{ path: string; data?: T; error?: string }>({ path });
  const [turn, setTurn] = useState(0);
  const again = () => setTurn((n) => n + 1);
  useEffect(() => {
    const stop = new AbortController();
    ask<T>(path, "GET", stop.signal).then(
      (data) => set({ path, data }),
      (e: Error) => stop.signal.aborted || set((old) => ({ path, data: old.path === path ? old.data : undefined, error: e.message })),
    );
    return () => stop.abort();
  }, [path, turn]);
  useChange(topics, again);
  return { data: state.data, error: state.error, again };
}
