// The page: its head, and the view that the URL names.

import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Summary } from "./api";
import { Failed, Flags } from "./bits";
import { CauseView } from "./cause";
import { ChangesView } from "./changes";
import { FlowsView } from "./flows";
import { keyboard } from "./keys";
import { listen, useConnected, useData } from "./live";
import { NodesView } from "./nodes";
import { ProblemsView } from "./problems";
import { current, go, link, useRoute, type Route } from "./route";
import { ServiceView } from "./service";
import { ServicesView } from "./services";
import { nextTheme, useTheme } from "./theme";

const views = ["problems", "services", "nodes", "changes", "flows"] as const;

function App() {
  const route = useRoute();
  const { data, error } = useData<Summary>("summary", ["services", "nodes", "state"]);
  const help = useRef<HTMLDialogElement>(null);
  useEffect(() => keyboard(() => help.current?.showModal()), []);
  useEffect(() => {
    document.title = ["Fairway", ...route.path].join(" · ");
    document.querySelector("main")?.scrollTo(0, 0);
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [route.path.join("/")]);
  return (
    <Flags.Provider value={data?.flags ?? ""}>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.querySelector<HTMLElement>("main")?.focus(); }}>Skip to the content</a>
      <Head route={route} data={data} help={() => help.current?.showModal()} />
      <main id="main" tabIndex={-1}>
        <Failed error={error} />
        <Parts data={data} />
        <CurrentView route={route} data={data} />
      </main>
      <Help dialog={help} />
    </Flags.Provider>
  );
}

function CurrentView({ route, data }: { route: Route; data: Summary | undefined }) {
  switch (route.path[0]) {
    case "services":
      return route.path[2] ? <ServiceView key={route.path.join("/")} route={route} canExamine={!!data?.canExamine} /> : <ServicesView route={route} />;
    case "nodes": return <NodesView route={route} />;
    case "changes": return <ChangesView route={route} />;
    case "flows": return <FlowsView route={route} />;
    case "causes": return <CauseView route={route} />;
  }
  return <ProblemsView route={route} />;
}

function Head({ route, data, help }: { route: Route; data: Summary | undefined; help: () => void }) {
  const at = route.path[0] ?? "";
  const theme = useTheme();
  const counts: Record<string, number | undefined> = { problems: data?.problems, services: data?.services, nodes: data?.nodes };
  return (
    <header class="head">
      <a class="brand" href="#/">Fairway</a>
      <nav aria-label="Views">
        {views.map((v) => (
          <a key={v} href={link([v])} aria-current={v === at ? "page" : undefined}>
            {v[0]?.toUpperCase() + v.slice(1)}{counts[v] !== undefined && <span class={v === "problems" && counts[v] ? "count alarm" : "count"}>{counts[v]?.toLocaleString("en")}</span>}
          </a>
        ))}
      </nav>
      <Search route={route} />
      <div class="tools">
        <button type="button" onClick={nextTheme} title="Light, dark, or as the system has it (t)">{theme === "system" ? "Auto" : theme === "dark" ? "Dark" : "Light"}</button>
        <button type="button" onClick={help} aria-label="Keys" title="Keys (?)">?</button>
      </div>
    </header>
  );
}

/** Search looks through the view that is shown, or through Services. */
function Search({ route }: { route: Route }) {
  const at = route.path[0] ?? "";
  const place = route.path.length === 1 && (views as readonly string[]).includes(at) ? at : "services";
  const q = route.path.length === 1 ? (route.params.get("q") ?? "") : "";
  const timer = useRef<number | undefined>(undefined);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (input.current && input.current !== document.activeElement) input.current.value = q;
  }, [q, at]);
  const search = (text: string) => {
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      const now = current(); // what was changed meanwhile counts
      if (now.path.join("/") !== route.path.join("/")) return;
      const params = now.path.length === 1 ? Object.fromEntries(now.params) : {};
      go(link([place], { ...params, q: text }), now.path.length === 1);
    }, 120);
  };
  return (
    <div class="search" role="search">
      <input id="search" ref={input} type="search" aria-label={"Search " + place} placeholder={"Search " + place + "  /"} autocomplete="off" spellcheck={false}
        onInput={(e) => search(e.currentTarget.value)} onKeyDown={(e) => e.key === "Enter" && enter(e.currentTarget)} />
    </div>
  );
}

/** enter goes from the search to what it found. */
function enter(input: HTMLInputElement): void {
  input.blur();
  window.dispatchEvent(new KeyboardEvent("keydown", { key: "j" }));
}

/** Parts says what can't be shown. */
function Parts({ data }: { data: Summary | undefined }) {
  const connected = useConnected();
  const failed = data?.parts?.filter((p) => p.error) ?? [];
  const reading = data?.parts?.filter((p) => p.reading).map((p) => p.resource) ?? [];
  return (
    <>
      {!connected && <p class="banner bad" role="alert">The connection to fairway web is lost; this is what it said last.</p>}
      {failed.map((p) => <p class="banner bad" role="alert" key={p.resource}><b>{p.resource}</b> can't be read: {p.error}</p>)}
      {reading.length > 0 && <p class="banner" role="status">Reading {reading.join(", ")} from {data?.server}…</p>}
    </>
  );
}

const keys: [string, string][] = [
  ["/", "search"], ["j  k", "next, previous"], ["enter", "open"], ["esc", "clear the search; go back"], ["c", "copy the nearest command"],
  ["g p", "problems"], ["g s", "services"], ["g n", "nodes"], ["g c", "changes"], ["g f", "flows"], ["t", "light, dark"], ["?", "this"],
];

function Help({ dialog }: { dialog: { current: HTMLDialogElement | null } }) {
  return (
    <dialog ref={dialog} aria-labelledby="keys-title">
      <h2 id="keys-title">Keys</h2>
      <dl>{keys.map(([k, what]) => <div key={k}><dt><kbd>{k}</kbd></dt><dd>{what}</dd></div>)}</dl>
      <form method="dialog"><button autofocus>Close</button></form>
    </dialog>
  );
}

listen();
const root = document.getElementById("page");
if (root) render(<App />, root);
