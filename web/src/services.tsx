// The list of Services.

import type { Row, Services } from "./api";
import { GradeMark, plural } from "./bits";
import { List } from "./list";
import { go, link, type Route } from "./route";

export function ServicesView({ route }: { route: Route }) {
  const q = route.params.get("q") ?? "";
  const sort = route.params.get("sort") ?? "name";
  return (
    <div class="fill">
      <div class="bar">
        <h1>Services</h1>
        <label>Order{" "}
          <select value={sort} onChange={(e) => go(link(["services"], { q, sort: e.currentTarget.value }), true)}>
            <option value="name">by name</option>
            <option value="worst">problems first</option>
          </select>
        </label>
      </div>
      <List<Row, Services> label="Services" path="services" params={{ q, sort }} rows={(a) => a.services} found={(a) => a.found}
        head={["State", "Service", "Type", "Addresses", "Ports", "Ready"]} row={cells} status={said} />
    </div>
  );
}

function said(a: Services) {
  const found = a.found === a.total ? plural(a.total, "Service") : `${a.found.toLocaleString("en")} of ${plural(a.total, "Service")}`;
  return a.waiting > 0 ? `${found}, ${a.waiting.toLocaleString("en")} to be looked at` : found;
}

function cells(r: Row) {
  return [
    <><GradeMark grade={r.grade} /> <span class="codes">{r.codes?.join(" ")}</span></>,
    <a data-item href={link(["services", r.namespace, r.name])}><span class="namespace">{r.namespace}/</span>{r.name}</a>,
    r.type,
    <span class="mono">{r.addresses?.join(", ")}</span>,
    <span class="mono">{r.ports?.join(", ")}</span>,
    <Ready row={r} />,
  ];
}

export function Ready({ row }: { row: Row }) {
  const state = row.type === "ExternalName" ? "none" : row.ready === 0 ? "bad" : row.ready < row.endpoints ? "some" : "all";
  return <span class={"ready " + state}>{row.type === "ExternalName" ? "–" : `${row.ready} of ${row.endpoints}`}</span>;
}
