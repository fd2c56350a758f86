// Nodes and their agents.

import type { Node, Nodes } from "./api";
import { Commands, Failed, Nothing, ago, fairway, kubectl, plural } from "./bits";
import { useData } from "./live";
import type { Route } from "./route";

export function NodesView({ route }: { route: Route }) {
  const q = (route.params.get("q") ?? "").toLowerCase();
  const { data, error } = useData<Nodes>("nodes", ["nodes", "services", "state"]);
  const all = data?.nodes ?? [];
  const list = all.filter((n) => !q || JSON.stringify([n.name, n.addresses, n.mode, n.version, n.zone, n.agent?.sync]).toLowerCase().includes(q));
  return (
    <>
      <div class="bar"><h1>Nodes</h1></div>
      <Failed error={error ?? data?.error} />
      {data && <p class="status" role="status">{plural(data.found, "node")}, {all.filter((n) => n.agent && !n.agent.error).length} with an agent that answers here.</p>}
      {data?.elsewhere?.map((text) => <p class="banner" key={text}>{text}</p>)}
      {data && list.length === 0 && <Nothing>No node to show.</Nothing>}
      <div class="cards">{list.map((n) => <Card key={n.name} n={n} />)}</div>
    </>
  );
}

function Card({ n }: { n: Node }) {
  const a = n.agent;
  return (
    <article class="card" data-item tabIndex={0} aria-label={n.name}>
      <header>
        <h2>{n.name}</h2>
        <span class={"mark " + (n.ready ? "well" : "proved")}>{n.ready ? "ready" : "not ready"}</span>
        {a?.sync && <span class={"mark " + (a.sync === "in step" ? "well" : "likely")}>{a.sync}</span>}
      </header>
      {n.why && <p class="what">{n.why}</p>}
      <dl>
        <dt>Mode</dt><dd>{n.mode || "unknown"}</dd>
        <dt>Version</dt><dd class="mono">{n.version || "unknown"}</dd>
        <dt>Addresses</dt><dd class="mono">{n.addresses?.join(", ") || "–"}</dd>
        {n.podCIDRs && <><dt>Pods</dt><dd class="mono">{n.podCIDRs.join(", ")}</dd></>}
        {n.zone && <><dt>Zone</dt><dd>{n.zone}</dd></>}
        {a?.conntrack && <><dt>Connections</dt><dd><span class={a.conntrack.used > 0.8 * a.conntrack.most ? "mark likely" : ""}>{fill(a.conntrack)}</span></dd></>}
        <dt>Agent</dt><dd>{agentText(n)}</dd>
      </dl>
      {a?.leftOut?.map((l) => <p class="banner bad" key={l.what}>Not in force: {l.what}</p>)}
      {a?.lacks && <details><summary>What this mode lacks here ({a.lacks.length})</summary><ul>{a.lacks.map((l) => <li key={l}>{l}</li>)}</ul></details>}
      <Commands label="Commands" list={[kubectl("describe", "node", n.name), ...(a ? [fairway("dump", "--node", n.name)] : [])]} />
    </article>
  );
}

/** fill says how full the connection table is. */
function fill({ used, most }: { used: number; most: number }): string {
  const share = most > 0 ? ` (${(used / most * 100).toFixed(used / most < 0.1 ? 1 : 0)}%)` : "";
  return `${used.toLocaleString("en")} of ${most.toLocaleString("en")} tracked${share}`;
}

function agentText(n: Node): string {
  const a = n.agent;
  if (!a) return "can't be reached from here";
  if (a.error) return a.error;
  const applied = a.applied ? `, the last change in force ${ago(a.applied)}` : "";
  return `${plural(a.services, "Service")} in force${applied}${a.detail ? ": " + a.detail : ""}`;
}
