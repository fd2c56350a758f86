// Connections as they begin and end.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Flow } from "./api";
import { query } from "./api";
import { Commands, Nothing, clock, fairway, plural, size, took } from "./bits";
import { Chart } from "./chart";
import { serviceLink, type Route } from "./route";

const most = 300; // rows
const span = 60; // seconds of the chart

interface State { flows: Flow[]; notes: string[]; total: number; perSecond: Map<number, number>; ended: boolean }
const empty = (): State => ({ flows: [], notes: [], total: 0, perSecond: new Map(), ended: false });

/** useFlows listens, and shows what it heard four times a second. */
function useFlows(service: string, paused: boolean): State {
  const heard = useRef(empty());
  const [shown, show] = useState(empty);
  useEffect(() => {
    heard.current = empty();
    show(empty());
    const source = new EventSource("/api/v1/flows" + query({ service }));
    source.addEventListener("flow", (e) => {
      const h = heard.current;
      h.flows = [JSON.parse((e as MessageEvent<string>).data) as Flow, ...h.flows.slice(0, most - 1)];
      h.total++;
      const now = Math.floor(Date.now() / 1000);
      h.perSecond.set(now, (h.perSecond.get(now) ?? 0) + 1);
    });
    source.addEventListener("note", (e) => {
      const text = JSON.parse((e as MessageEvent<string>).data) as string;
      if (!heard.current.notes.includes(text)) heard.current.notes.push(text);
    });
    source.addEventListener("end", () => {
      source.close();
      heard.current.ended = true;
    });
    source.addEventListener("error", () => {
      if (source.readyState !== EventSource.CLOSED) return; // else the browser asks again
      heard.current.notes.push("Connections can't be asked for: no agent can be reached from here.");
      heard.current.ended = true;
    });
    return () => source.close();
  }, [service]);
  useEffect(() => {
    if (paused) return;
    const timer = setInterval(() => show({ ...heard.current, notes: [...heard.current.notes] }), 250);
    return () => clearInterval(timer);
  }, [paused, service]);
  return shown;
}

/** words are what a search looks through. */
function words(f: Flow): string {
  return [f.node, f.clientName, f.client, f.service, f.frontend, f.protocol, f.pod, f.endpoint, f.verdict, f.reason].join(" ").toLowerCase();
}

export function FlowsView({ route }: { route: Route }) {
  const service = route.params.get("service") ?? "";
  const q = (route.params.get("q") ?? "").toLowerCase();
  const [paused, setPaused] = useState(false);
  const state = useFlows(service, paused);
  const list = state.flows.filter((f) => !q || words(f).includes(q));
  const now = Math.floor(Date.now() / 1000);
  const times = Array.from({ length: span }, (_, i) => now - span + i);
  return (
    <>
      <div class="bar">
        <h1>Flows{service && <> of {service}</>}</h1>
        <button type="button" aria-pressed={paused} onClick={() => setPaused(!paused)}>{paused ? "Go on" : "Pause"}</button>
      </div>
      <p class="status" role="status">
        {state.ended ? "Nothing more comes." : "Connections as they begin and end, while this view is open."} {plural(state.total, "event")} so far.
      </p>
      {state.notes.map((n) => <p class="banner" key={n}>{n}</p>)}
      {state.total > 0 && <Chart label="Events per second" times={times} series={[{ label: "events", values: times.map((t) => state.perSecond.get(t) ?? 0) }]} />}
      {list.length === 0 ? <Nothing>{state.ended ? "No connections can be shown." : "Waiting for connections…"}</Nothing> : <Table list={list} />}
      <Commands label="Commands" list={[service ? fairway("flows", "-f", "--service", service.split("/")[1] ?? "", "-n", service.split("/")[0] ?? "") : fairway("flows", "-f")]} />
    </>
  );
}

function Table({ list }: { list: Flow[] }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Connections">
      <table>
        <thead><tr><th>Time</th><th>Node</th><th>Client</th><th>Service</th><th>Endpoint</th><th>Verdict</th><th title="What the client said, and the endpoint">Bytes in / out</th><th>Took</th></tr></thead>
        <tbody>
          {list.map((f) => (
            <tr key={f.time + f.client + f.verdict}>
              <td class="mono">{clock(f.time)}</td>
              <td>{f.node}</td>
              <td>{f.clientName} <span class="mono">{f.client}</span></td>
              <td>{f.service ? <a data-item href={serviceLink(f.service)}>{f.service}</a> : "no Service"} <span class="mono">{f.frontend}/{f.protocol}</span></td>
              <td>{f.pod} <span class="mono">{f.endpoint ?? "–"}</span></td>
              <td class="reason"><span class={"verdict " + f.verdict}>{f.verdict}</span>{f.reason && <> <span class="what">{f.reason}</span></>}</td>
              <td class="number">{f.bytes ? `${size(f.bytes.in)} / ${size(f.bytes.out)}` : "–"}</td>
              <td class="number">{f.tookSeconds ? took(f.tookSeconds) : "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
