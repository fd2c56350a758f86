// Where in the page one is: the part of the URL behind "#".

import { useEffect, useState } from "preact/hooks";

export interface Route { path: string[]; params: URLSearchParams }

export function current(): Route {
  const [path, params] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: (path || "problems").split("/").map(decodeURIComponent), params: new URLSearchParams(params) };
}

/** link is the URL of a place. */
export function link(path: string[], params: Record<string, string> = {}): string {
  const list = new URLSearchParams(Object.entries(params).filter(([, v]) => v !== ""));
  return "#/" + path.map(encodeURIComponent).join("/") + (list.size ? "?" + list : "");
}

/** serviceLink is the URL of a Service, given as "namespace/name". */
export function serviceLink(service: string): string {
  const [namespace = "", rest = ""] = service.split("/");
  return link(["services", namespace, rest.split(":")[0] ?? ""]);
}

/** go moves; replace leaves no step behind to come back to. */
export function go(to: string, replace = false): void {
  if (!replace) {
    location.hash = to;
    return;
  }
  history.replaceState(null, "", to);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute(): Route {
  const [route, set] = useState(current);
  useEffect(() => {
    const changed = () => set(current());
    window.addEventListener("hashchange", changed);
    changed(); // it may have changed before anybody listened
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return route;
}
