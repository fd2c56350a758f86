// What is not well, the surest first.

import { useState } from "preact/hooks";
import type { Grade, Problem, Problems } from "./api";
import { query } from "./api";
import { Code, Commands, Failed, GradeMark, Nothing, fairway, kubectl, plural } from "./bits";
import { useData } from "./live";
import { go, link, serviceLink, type Route } from "./route";

const grades: Grade[] = ["proved", "likely", "note"];
const meaning: Record<Grade, string> = {
  proved: "objects contradict each other, or a packet died", likely: "something looks wrong, and would explain it", note: "worth knowing; never an error",
};

export function ProblemsView({ route }: { route: Route }) {
  const q = route.params.get("q") ?? "";
  const grade = route.params.get("grade") ?? "";
  const [limit, setLimit] = useState(50);
  const { data, error } = useData<Problems>("problems" + query({ q, grade, limit }), ["services", "nodes", "state"]);
  return (
    <>
      <div class="bar">
        <h1>Problems</h1>
        <div class="choice" role="group" aria-label="Grade">
          {["", ...grades].map((g) => (
            <button type="button" key={g} aria-pressed={g === grade} title={g ? meaning[g as Grade] : ""} onClick={() => go(link(["problems"], { q, grade: g }), true)}>
              {g || "all"} <span class="count">{g ? (data?.counts[g as Grade] ?? 0) : Object.values(data?.counts ?? {}).reduce((a, b) => a + b, 0)}</span>
            </button>
          ))}
        </div>
      </div>
      <Failed error={error} />
      {data && <Said data={data} />}
      {data && groups(data.problems).map((g) => <Group key={g[0]?.code ?? g[0]?.node} list={g} />)}
      {data && data.found > limit && limit < 200 && (
        <button type="button" class="more" onClick={() => setLimit(200)}>Show {Math.min(200, data.found) - limit} more of {data.found}</button>
      )}
      {data && data.found > 200 && limit >= 200 && <Nothing>and {data.found - 200} more: search for them, or {fairway("doctor", "-A")}</Nothing>}
    </>
  );
}

function Said({ data }: { data: Problems }) {
  const looked = plural(data.services, "Service") + " looked at by what the API says";
  return (
    <>
      <p class="status" role="status">{looked}{data.waiting > 0 ? `, ${data.waiting} to go` : ""}.</p>
      {data.found === 0 && data.waiting === 0 && <p class="banner good">Nothing found: all is well as far as the API says.</p>}
    </>
  );
}

/** groups puts findings of one code that follow each other together. */
function groups(list: Problem[]): Problem[][] {
  const all: Problem[][] = [];
  for (const p of list) {
    const last = all.at(-1);
    if (last?.[0] && p.code && last[0].code === p.code && last[0].grade === p.grade) last.push(p);
    else all.push([p]);
  }
  return all;
}

function Group({ list }: { list: Problem[] }) {
  const first = list[0];
  if (!first) return null;
  return (
    <section class="problem">
      <header>
        <GradeMark grade={first.grade} />
        {first.code && <Code code={first.code} />}
        <h2>{first.title ?? first.node}</h2>
        {list.length > 1 && <span class="count">{list.length}</span>}
      </header>
      <ul class="findings">{list.map((p) => <Item key={(p.service ?? p.node) + p.what} p={p} />)}</ul>
      {first.fix && first.grade !== "note" && <p class="fix"><b>Fix</b> {first.fix}</p>}
    </section>
  );
}

function Item({ p }: { p: Problem }) {
  const [namespace = "", name = ""] = (p.service ?? "").split("/");
  const commands = p.service
    ? [fairway("doctor", "svc/" + name, "-n", namespace)]
    : [kubectl("describe", "node", p.node ?? "")];
  return (
    <li>
      {p.service ? <a data-item href={serviceLink(p.service)}>{p.service}</a> : <a data-item href={link(["nodes"])}>{p.node || "an agent"}</a>}
      <span class="what">{p.what}</span>
      <Commands list={commands} label="Commands" />
    </li>
  );
}
