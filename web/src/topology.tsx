// A Service, its ports, their endpoints and the nodes these are on, as a drawing.
// The table below it says the same in words.

import type { Candidate, Decision, Endpoint } from "./api";
import { plural } from "./bits";

const width = 200, gap = 70, line = 44, high = 34;
const most = 20; // endpoints

interface Box { key: string; title: string; detail: string; state: "on" | "off" | "refused"; y: number }
interface Edge { from: Box; to: Box; column: number; on: boolean; share: number }

export function Topology({ name, decisions, endpoints }: { name: string; decisions: Decision[]; endpoints: Endpoint[] }) {
  const d = lay(name, decisions, endpoints);
  const height = Math.max(...d.columns.map((c) => c.length)) * line + 10;
  const total = d.columns.length * width + (d.columns.length - 1) * gap;
  return (
    <div class="wide topology" tabIndex={0} role="region" aria-label="Topology">
      <svg viewBox={`-1 0 ${total + 2} ${height}`} width={total + 2} height={height} role="img" aria-label={d.words}>
        {d.edges.map((e, i) => <path key={i} class={e.on ? "edge on" : "edge"} d={curve(e)} stroke-width={e.on ? 1.2 + 3 * e.share : 1} />)}
        {d.columns.map((column, i) => column.map((b) => (
          <g key={b.key} class={"box " + b.state} transform={`translate(${i * (width + gap)} ${b.y})`}>
            <title>{b.title} {b.detail}</title>
            <rect width={width} height={high} rx="5" />
            <text x="10" y={b.detail ? 14 : 21} class="title">{cut(b.title, 29)}</text>
            {b.detail && <text x="10" y="27" class="detail">{cut(b.detail, 30)}</text>}
          </g>
        )))}
      </svg>
      {d.more > 0 && <p class="status">and {d.more} more endpoints, in the table</p>}
    </div>
  );
}

function cut(text: string, n: number): string {
  return text.length > n ? text.slice(0, n - 1) + "…" : text;
}

function curve({ from, to, column }: Edge): string {
  const x = column * (width + gap) + width, y = from.y + high / 2, z = to.y + high / 2;
  return `M${x} ${y} C${x + gap / 2} ${y} ${x + gap / 2} ${z} ${x + gap} ${z}`;
}

/** lay puts the boxes in columns, each in the middle of the drawing's height. */
function lay(name: string, decisions: Decision[], endpoints: Endpoint[]) {
  const service: Box = { key: name, title: name, detail: "", state: "on", y: 0 };
  const ports = new Map<string, Box>(), ends = new Map<string, Box>(), nodes = new Map<string, Box>();
  const edges = new Map<string, Edge>();
  let more = 0;
  const join = (from: Box, to: Box, column: number, on: boolean, share: number) => {
    const key = column + from.key + "\n" + to.key;
    const old = edges.get(key);
    edges.set(key, { from, to, column, on: on || !!old?.on, share: Math.max(share, old?.share ?? 0) });
  };
  // For a frontend of the other IP family, an endpoint has no port.
  const withPort = new Set(decisions.flatMap((d) => (d.candidates ?? []).filter((c) => c.port).map((c) => c.address)));
  for (const d of decisions) {
    const port = portOf(d, ports);
    join(service, port, 0, d.action === "forwarded", 0);
    for (const c of d.candidates ?? []) {
      if (!c.port && withPort.has(c.address)) continue;
      const at = c.address + ":" + (c.port ?? "");
      if (!ends.has(at) && ends.size >= most) {
        more++;
        continue;
      }
      const known = endpoints.find((e) => e.address === c.address && (!c.slice || e.slice === c.slice));
      const end = endOf(at, c, known, ends);
      join(port, end, 1, c.chosen && d.action === "forwarded", c.share);
      const node = known?.node;
      if (!node) continue;
      const box = nodes.get(node) ?? { key: node, title: node, detail: known.zone ?? "", state: "off" as const, y: 0 };
      if (c.chosen) box.state = "on";
      nodes.set(node, box);
      join(end, box, 2, c.chosen && d.action === "forwarded", c.share);
    }
  }
  const columns = [[service], [...ports.values()], [...ends.values()], [...nodes.values()]].filter((c) => c.length > 0);
  const rows = Math.max(...columns.map((c) => c.length));
  for (const c of columns) c.forEach((b, i) => { b.y = 5 + ((rows - c.length) / 2 + i) * line; });
  const on = [...ends.values()].filter((b) => b.state === "on").length;
  const words = `${name}: ${plural(ports.size, "port")}, ${plural(ends.size + more, "endpoint")} of which ${on} take connections, on ${plural(nodes.size, "node")}`;
  return { columns, edges: [...edges.values()], more, words };
}

function portOf(d: Decision, ports: Map<string, Box>): Box {
  const port = d.service?.split(":").slice(1).join(":") || d.frontend.slice(d.frontend.lastIndexOf(":") + 1);
  const key = port + d.frontend.slice(d.frontend.lastIndexOf(":"));
  const old = ports.get(key);
  if (old) {
    old.detail += ", " + d.frontend.slice(0, d.frontend.lastIndexOf(":"));
    return old;
  }
  const box: Box = { key, title: port, detail: d.frontend, state: d.action === "forwarded" ? "on" : "refused", y: 0 };
  ports.set(key, box);
  return box;
}

function endOf(at: string, c: Candidate, known: Endpoint | undefined, ends: Map<string, Box>): Box {
  const box = ends.get(at) ?? { key: at, title: known?.pod ?? at, detail: (known?.pod ? at : "") + (c.chosen ? "" : " " + c.why), state: "off" as const, y: 0 };
  if (c.chosen) box.state = "on";
  ends.set(at, box);
  return box;
}
