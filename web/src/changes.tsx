// The latest changes, and how long nodes took.

import { useMemo } from "preact/hooks";
import type { Change, Changes } from "./api";
import { query } from "./api";
import { Commands, Failed, Nothing, clock, kubectl, plural, took } from "./bits";
import { Chart } from "./chart";
import { useData } from "./live";
import { serviceLink, type Route } from "./route";

export function ChangesView({ route }: { route: Route }) {
  const q = route.params.get("q") ?? "";
  const { data, error } = useData<Changes>("changes" + query({ q }), ["changes"]);
  return (
    <>
      <div class="bar"><h1>Changes</h1></div>
      <Failed error={error} />
      {data && <p class="status" role="status">{plural(data.found, "change")} since this page was started{data.notTold ? "; " + data.notTold : ""}.</p>}
      {data && <Latency list={data.changes} />}
      {data && data.changes.length === 0 && <Nothing>Nothing has changed yet.</Nothing>}
      {data && data.changes.length > 0 && <ChangeTable list={data.changes} named />}
    </>
  );
}

export function ChangeTable({ list, named }: { list: Change[]; named?: boolean }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Changes">
      <table>
        <thead><tr><th>Time</th>{named && <th>Service</th>}<th>What</th><th>In force after</th></tr></thead>
        <tbody>
          {list.map((c, i) => (
            <tr key={c.time + i}>
              <td class="mono">{clock(c.time)}</td>
              {named && <td><a data-item href={serviceLink(c.service)}>{c.service}</a></td>}
              <td>{c.what.join("; ")}</td>
              <td>{c.nodes?.map((n) => <span class="took" key={n.node} title={"since it was " + n.since}>{n.node} <b>{took(n.seconds)}</b></span>) ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {named && <Commands label="Commands" list={[kubectl("get", "endpointslices", "-A", "--watch")]} />}
    </div>
  );
}

/** Latency is a point for each change and node. */
function Latency({ list }: { list: Change[] }) {
  const { times, series } = useMemo(() => {
    const oldest = [...list].reverse().filter((c) => c.nodes?.length);
    const nodes = [...new Set(oldest.flatMap((c) => c.nodes?.map((n) => n.node) ?? []))].sort().slice(0, 6);
    return {
      times: oldest.map((c) => new Date(c.time).getTime() / 1000),
      series: nodes.map((node) => ({ label: node, values: oldest.map((c) => (c.nodes?.find((n) => n.node === node)?.seconds ?? NaN) * 1000) })),
    };
  }, [list]);
  if (times.length < 2) return null;
  return <Chart label="Milliseconds until a change is in force, by node" times={times} series={series} points />;
}
