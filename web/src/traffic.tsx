// What the nodes count of one Service, and how much of it in a second, while somebody looks.

import { useEffect, useState } from "preact/hooks";
import type { NodeTraffic, Traffic } from "./api";
import { ask } from "./api";
import { Chart } from "./chart";
import { Failed, Nothing, Section } from "./bits";

const period = 2000; // milliseconds from one answer to the next question
const kept = 150; // answers

/** Rates are of a second, between two answers. */
interface Rates { connections: number; refused: number; in: number; out: number }

/** since is how much was counted; a counter that went back began at 0 again. */
const since = (before: number, now: number) => (now < before ? now : now - before);

function rates(before: NodeTraffic | undefined, now: NodeTraffic, seconds: number): Rates | undefined {
  if (!before || before.error || now.error || seconds <= 0) return undefined;
  const of = (k: keyof Rates) => since(before[k], now[k]) / seconds;
  return { connections: of("connections"), refused: of("refused"), in: of("in"), out: of("out") };
}

const number = (n: number | undefined) => (n === undefined ? "–" : n >= 100 || n === Math.round(n) ? Math.round(n).toLocaleString("en") : n.toFixed(1));

/** size is a number of bytes; nothing where none is counted. */
function size(n: number | undefined, counted: boolean): string {
  if (n === undefined || !counted) return "–";
  const unit = n >= 1e9 ? 1e9 : n >= 1e6 ? 1e6 : n >= 1e3 ? 1e3 : 1;
  return number(n / unit) + " " + ({ 1: "B", 1000: "kB", 1000000: "MB", 1000000000: "GB" } as Record<number, string>)[unit];
}

export function TrafficOf({ path }: { path: string }) {
  const [list, set] = useState<Traffic[]>([]);
  const [error, setError] = useState<string>();
  useEffect(() => {
    set([]);
    const stop = new AbortController();
    let timer: number | undefined;
    const turn = () => {
      if (document.hidden) return void (timer = window.setTimeout(turn, period));
      ask<Traffic>(path + "/traffic", "GET", stop.signal).then(
        (t) => { set((old) => [...old.slice(1 - kept), t]); setError(undefined); },
        (e: Error) => stop.signal.aborted || setError(e.message),
      ).finally(() => { if (!stop.signal.aborted) timer = window.setTimeout(turn, period); });
    };
    turn();
    return () => { stop.abort(); window.clearTimeout(timer); };
  }, [path]);
  const now = list.at(-1);
  const between = list.slice(1).map((t, i) => sum(list[i], t));
  return (
    <Section title="Traffic">
      <Failed error={error} />
      {now?.notTold && <Nothing>{now.notTold}</Nothing>}
      {now?.nodes && now.nodes.length > 0 && (
        <div class="wide" tabIndex={0} role="region" aria-label="Traffic by node">
          <table>
            <thead><tr><th>Node</th><th>New connections</th><th>a second</th><th>Refused packets</th><th>a second</th><th>Why</th><th>In, a second</th><th>Out, a second</th></tr></thead>
            <tbody>{now.nodes.map((n) => <Row key={n.node} n={n} r={rateOf(list.at(-2), now, n)} />)}</tbody>
          </table>
        </div>
      )}
      {between.length > 1 && (
        <Chart label="New connections and refused packets per second, on all nodes that tell" times={list.slice(1).map((t) => Date.parse(t.time) / 1000)}
          series={[{ label: "connections", values: between.map((b) => b.connections) }, { label: "refused", values: between.map((b) => b.refused) }]} />
      )}
    </Section>
  );
}

function Row({ n, r }: { n: NodeTraffic; r: Rates | undefined }) {
  if (n.error) return <tr><td>{n.node}</td><td colSpan={7}>{n.error}</td></tr>;
  const counted = n.in + n.out > 0;
  const why = [n.noEndpoint && `${number(n.noEndpoint)} no endpoint`, n.notAllowed && `${number(n.notAllowed)} source not let in`].filter(Boolean).join(", ");
  return (
    <tr>
      <td>{n.node}{n.mode ? ` (${n.mode})` : ""}</td><td>{number(n.connections)}</td><td>{number(r?.connections)}</td>
      <td>{number(n.refused)}</td><td>{number(r?.refused)}</td><td>{why || "–"}</td><td>{size(r?.in, counted)}</td><td>{size(r?.out, counted)}</td>
    </tr>
  );
}

function rateOf(before: Traffic | undefined, now: Traffic, n: NodeTraffic): Rates | undefined {
  return before && rates(before.nodes?.find((b) => b.node === n.node), n, (Date.parse(now.time) - Date.parse(before.time)) / 1000);
}

function sum(before: Traffic | undefined, now: Traffic): Rates {
  const all = { connections: 0, refused: 0, in: 0, out: 0 };
  for (const n of now.nodes ?? []) {
    const r = rateOf(before, now, n);
    if (r) { all.connections += r.connections; all.refused += r.refused; all.in += r.in; all.out += r.out; }
  }
  return all;
}
