// The page of one Service: the answer, what is wrong, where packets go and why.

import { useEffect, useState } from "preact/hooks";
import type { Candidate, Decision, Diagnosis, Endpoint, Explanation, Origin, Service, View } from "./api";
import { ask, query } from "./api";
import { Code, Commands, Failed, GradeMark, Nothing, Section, fairway, kubectl } from "./bits";
import { ChangeTable } from "./changes";
import { useData } from "./live";
import { go, link, type Route } from "./route";
import { Ready } from "./services";
import { Topology } from "./topology";
import { TrafficOf } from "./traffic";

const origins: Record<Origin, string> = { pod: "a pod", node: "the node", outside: "outside" };

export function ServiceView({ route, canExamine }: { route: Route; canExamine: boolean }) {
  const [, namespace = "", name = ""] = route.path;
  const from = route.params.get("from") ?? "";
  const path = `services/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const { data, error } = useData<Service>(path + query({ from }), ["services", "nodes"]);
  return (
    <>
      <div class="bar">
        <h1><a class="namespace" href={link(["services"], { q: namespace + "/" })}>{namespace}/</a>{name}</h1>
        {data?.row.name && <><GradeMark grade={data.row.grade} /><span class="type">{data.row.type}</span><span class="status">ready <Ready row={data.row} /></span></>}
      </div>
      <Failed error={error} />
      {data && (
        <>
          <Failed error={data.fromError} />
          <Answer e={data.explanation} />
          {data.diagnosis && <Findings path={path} from={from} d={data.diagnosis} canExamine={canExamine} />}
          <Ways e={data.explanation} name={name} from={from} route={route} />
          <TrafficOf path={path} />
          <Facts e={data.explanation} />
          {data.changes && data.changes.length > 0 && <Section title="Latest changes"><ChangeTable list={data.changes} /></Section>}
          <Section title="The same as commands"><Commands label="Commands" list={commands(namespace, name, from)} /></Section>
        </>
      )}
    </>
  );
}

function commands(namespace: string, name: string, from: string): string[] {
  const asked = from ? ["--from", from] : [];
  return [
    fairway("explain", "svc/" + name, "-n", namespace, ...asked), fairway("doctor", "svc/" + name, "-n", namespace, ...asked),
    fairway("dump", "svc/" + name, "-n", namespace), fairway("flows", "-f", "--service", name, "-n", namespace),
    kubectl("describe", "service", name, "-n", namespace), kubectl("get", "endpointslices", "-n", namespace, "-l", "kubernetes.io/service-name=" + name),
  ];
}

function Answer({ e }: { e: Explanation }) {
  const kind = e.outcome === "forwarded" ? "good" : e.outcome === "could not tell" ? "" : "bad";
  return <div class={"banner answer " + kind}>{(e.answer || e.outcome).split("\n").map((l) => <p key={l}>{l}</p>)}</div>;
}

function Findings({ path, from, d, canExamine }: { path: string; from: string; d: Diagnosis; canExamine: boolean }) {
  const [full, setFull] = useState<{ report?: Diagnosis; error?: string; busy?: boolean }>({});
  useEffect(() => setFull({}), [path, from]);
  const examine = () => {
    setFull({ busy: true });
    ask<Diagnosis>(path + "/examine" + query({ from }), "POST").then((report) => setFull({ report }), (e: Error) => setFull({ error: e.message }));
  };
  const shown = full.report ?? d;
  const findings = (shown.results ?? []).flatMap((r) => r.findings ?? []);
  const well = (shown.results ?? []).filter((r) => !r.findings?.length);
  return (
    <Section title="Diagnosis" aside={canExamine && (
      <button type="button" onClick={examine} disabled={full.busy} title="Connects to each endpoint, asks DNS, and looks at this machine">{full.busy ? "Examining…" : "Examine in full"}</button>
    )}>
      <Failed error={full.error} />
      {findings.length === 0 && <Nothing>{full.report ? "Nothing found." : "Nothing found by what the API says."}</Nothing>}
      <ul class="findings">
        {findings.map((f) => (
          <li key={f.code + f.what} class="finding">
            <GradeMark grade={f.grade} /> <Code code={f.code} /> <span class="what">{f.what}</span>
            {f.grade !== "note" && <p class="fix"><b>Fix</b> {f.fix}</p>}
          </li>
        ))}
      </ul>
      <details>
        <summary>{well.length} ok, {shown.skipped?.length ?? 0} skipped, {shown.notChecked?.length ?? 0} not checked</summary>
        <ul class="checks">
          {well.map((r) => <li key={r.check}><span class="mark well">ok</span> {r.check}</li>)}
          {shown.skipped?.map((s) => <li key={s}><span class="mark">skipped</span> {s}</li>)}
          {shown.notChecked?.map((s) => <li key={s}><span class="mark">not checked</span> {s}</li>)}
        </ul>
      </details>
    </Section>
  );
}

/** Ways has the choice of whose packets, at which node, to which address. */
function Ways({ e, name, from, route }: { e: Explanation; name: string; from: string; route: Route }) {
  const views = e.views ?? [];
  const [node, setNode] = useState(0);
  const [origin, setOrigin] = useState<Origin>("pod");
  const [front, setFront] = useState("");
  const view: View | undefined = views[node] ?? views[0];
  const all = view?.decisions ?? [];
  const has = [...new Set(all.map((d) => d.origin))];
  const by = has.includes(origin) ? origin : has[0];
  const list = all.filter((d) => d.origin === by);
  const decision = list.find((d) => d.frontend === front) ?? list[0];
  const ask = (text: string) => go(link(route.path, { from: text.trim() }), true);
  return (
    <Section title="Where packets go">
      <div class="bar choices">
        <form onSubmit={(s) => { s.preventDefault(); ask(new FormData(s.currentTarget).get("from") as string); }}>
          <label>From <input name="from" key={from} defaultValue={from} placeholder="anywhere, pod/NAME, node/NAME, IP" autocomplete="off" spellcheck={false} /></label>
          <button type="submit">Ask</button>
        </form>
        {has.length > 1 && (
          <div class="choice" role="group" aria-label="Packets from">
            {has.map((o) => <button type="button" key={o} aria-pressed={o === by} onClick={() => setOrigin(o)}>{origins[o]}</button>)}
          </div>
        )}
        {views.length > 1 && (
          <label>at <select value={node} onChange={(c) => setNode(Number(c.currentTarget.value))}>
            {views.map((v, i) => <option key={v.node} value={i}>{v.node}</option>)}
          </select></label>
        )}
        {list.length > 1 && (
          <label>to <select value={decision?.frontend} onChange={(c) => setFront(c.currentTarget.value)}>
            {list.map((d) => <option key={d.frontend} value={d.frontend}>{d.frontend} {d.entrance}</option>)}
          </select></label>
        )}
      </div>
      {view && <p class="status">As {view.mode ? `the agent of ${view.node} (${view.mode}) has it in force` : `follows from the API${view.node ? " on " + view.node : ""}`}.</p>}
      {view?.differs?.map((d) => <p class="banner" key={d}>The agent differs from the API: {d}</p>)}
      {list.length > 0 && <Topology name={name} decisions={list} endpoints={e.endpoints ?? []} />}
      {decision ? <Chosen d={decision} endpoints={e.endpoints ?? []} /> : <Nothing>Nothing is forwarded.</Nothing>}
    </Section>
  );
}

function Chosen({ d, endpoints }: { d: Decision; endpoints: Endpoint[] }) {
  const how = d.action === "forwarded"
    ? [d.choice, d.clientAddress].filter(Boolean).join(", ")
    : d.reason;
  const of = (c: Candidate) => endpoints.find((e) => e.address === c.address && (!c.slice || e.slice === c.slice));
  return (
    <>
      <p class="decision"><span class="mono">{d.frontend}</span> {d.entrance} <span class={"verdict " + (d.action === "forwarded" ? "answered" : "unanswered")}>{d.action}</span> {how}{d.sourceRanges ? `; sources in ${d.sourceRanges.join(", ")}` : ""}</p>
      {d.candidates && (
        <div class="wide" tabIndex={0} role="region" aria-label="Endpoints">
          <table>
            <thead><tr><th>Endpoint</th><th>Pod</th><th>Node</th><th>Share</th><th>Why</th></tr></thead>
            <tbody>
              {d.candidates.map((c) => {
                const e = of(c);
                return (
                  <tr key={c.address + c.port + c.slice} class={c.chosen ? "" : "unchosen"}>
                    <td class="mono">{c.address.includes(":") ? `[${c.address}]` : c.address}{c.port ? ":" + c.port : ""}</td>
                    <td>{e?.pod ?? "–"}</td>
                    <td>{e?.node ?? "–"}{e?.zone ? ` (${e.zone})` : ""}</td>
                    <td>{c.chosen ? <><meter min={0} max={1} value={c.share} aria-label="Share">{c.share}</meter> {(c.share * 100).toFixed(0)} %</> : c.draining ? "drains" : "–"}</td>
                    <td>{c.why}{e?.detail ? " " + e.detail : ""}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

function Facts({ e }: { e: Explanation }) {
  const s = e.service;
  const said = [...(e.notes ?? []), ...(e.notChecked ?? []).map((n) => "not checked: " + n)];
  if (!s && said.length === 0) return null;
  return (
    <Section title="Facts">
      {s && (
        <dl class="facts">
          <dt>Addresses</dt><dd class="mono">{s.addresses?.join(", ") || "none"}</dd>
          <dt>Selector</dt><dd class="mono">{s.selector || "none"}</dd>
          <dt>Pods selected</dt><dd>{s.podsSelected}</dd>
          <dt>EndpointSlices</dt><dd>{s.endpointSlices}</dd>
          {s.internalTrafficPolicy && <><dt>Traffic inside</dt><dd>{s.internalTrafficPolicy}</dd></>}
          {s.externalTrafficPolicy && <><dt>Traffic outside</dt><dd>{s.externalTrafficPolicy}</dd></>}
          {s.loadBalancer && <><dt>Load balancer</dt><dd class="mono">{s.loadBalancer.join(", ")}</dd></>}
          {s.externalName && <><dt>Alias of</dt><dd class="mono">{s.externalName}</dd></>}
        </dl>
      )}
      {said.length > 0 && <ul class="notes">{said.map((n) => <li key={n}>{n}</li>)}</ul>}
    </Section>
  );
}
