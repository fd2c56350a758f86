// What a code of doctor's means.

import type { Cause } from "./api";
import { Commands, Failed, fairway } from "./bits";
import { useData } from "./live";
import { link, type Route } from "./route";

export function CauseView({ route }: { route: Route }) {
  const code = route.path[1] ?? "";
  const { data, error } = useData<Cause>("causes/" + encodeURIComponent(code), []);
  return (
    <>
      <div class="bar"><h1>{code}{data && ": " + data.title}</h1></div>
      <Failed error={error} />
      {data && (
        <>
          <p>{data.meaning}</p>
          <p class="fix"><b>Fix</b> {data.fix}</p>
          <p><a data-item href={link(["services"], { q: code, sort: "worst" })}>Services with {code}</a></p>
          <Commands label="Commands" list={[fairway("doctor", "--explain", code)]} />
        </>
      )}
    </>
  );
}
