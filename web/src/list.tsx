// A list of any length: the back end cuts it into pages, and only the rows in sight
// are there.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ask, query } from "./api";
import { setMover } from "./keys";
import { useChange } from "./live";

interface Props<R, A> {
  label: string;
  path: string; // of the back end
  params: Record<string, string>;
  rows: (answer: A) => R[];
  found: (answer: A) => number;
  head: string[];
  row: (r: R) => ComponentChildren[]; // a cell for each of head; one holds a link with data-item
  status: (answer: A) => ComponentChildren;
}

const pageSize = 100;
const narrow = matchMedia("(max-width: 760px)");
const heightOf = () => (narrow.matches ? 58 : 34);

/** usePages keeps the pages that were in sight. */
function usePages<R, A>(p: Props<R, A>, from: number, to: number) {
  const key = p.path + query(p.params);
  const [state, set] = useState<{ key: string; pages: Map<number, R[]>; last?: A; error?: string }>({ key, pages: new Map() });
  const [turn, setTurn] = useState(0);
  useChange(["services"], () => setTurn((n) => n + 1));
  const first = Math.floor(from / pageSize);
  const last = Math.floor(Math.max(from, to - 1) / pageSize);
  const got = useRef<{ key: string; turn: number; pages: Set<number> }>({ key: "", turn: -1, pages: new Set() });
  useEffect(() => {
    if (got.current.key !== key || got.current.turn !== turn) got.current = { key, turn, pages: new Set() };
    for (let n = first; n <= last; n++) {
      if (got.current.pages.has(n)) continue;
      const mine = got.current;
      mine.pages.add(n);
      ask<A>(p.path + query({ ...p.params, offset: n * pageSize, limit: pageSize })).then(
        (answer) => {
          if (got.current !== mine) return;
          set((old) => {
            const pages = new Map(old.key === key ? old.pages : []);
            return { key, pages: pages.set(n, p.rows(answer)), last: answer };
          });
        },
        (e: Error) => {
          mine.pages.delete(n);
          set((old) => ({ ...old, error: e.message }));
        },
      );
    }
  }, [key, turn, first, last]);
  return state;
}

export function List<R, A>(p: Props<R, A>) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [size, setSize] = useState({ height: 600, row: heightOf() });
  const at = useRef(-1); // the row that has the focus, or had it last
  const wanted = useRef(false); // a key moved there, and the row isn't drawn yet
  const [moves, setMoves] = useState(0);
  const from = Math.max(0, Math.floor(top / size.row) - 5);
  const to = from + Math.ceil(size.height / size.row) + 10;
  const { pages, last, error } = usePages(p, from, to);
  const found = last ? p.found(last) : 0;

  useLayoutEffect(() => {
    const measure = () => box.current && setSize({ height: box.current.clientHeight, row: heightOf() });
    measure();
    const watch = new ResizeObserver(measure);
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const key = query(p.params);
  useEffect(() => {
    at.current = -1;
    wanted.current = false;
    if (box.current) box.current.scrollTop = 0;
  }, [key]);
  useEffect(() => {
    const move = (by: number) => {
      at.current = Math.max(0, Math.min(found - 1, at.current + by));
      wanted.current = true;
      setMoves((n) => n + 1);
    };
    setMover({ move });
    return () => setMover(undefined);
  }, [found]);
  useEffect(() => {
    if (!wanted.current || !box.current) return;
    const y = at.current * size.row;
    if (y < box.current.scrollTop) box.current.scrollTop = y;
    const low = y + 2 * size.row - box.current.clientHeight;
    if (low > box.current.scrollTop) box.current.scrollTop = low;
    const item = box.current.querySelector<HTMLElement>(`[aria-rowindex="${at.current + 2}"] [data-item]`);
    if (!item) return;
    wanted.current = false;
    item.focus({ preventScroll: true });
  }, [moves, top, pages]);

  const rows = [];
  for (let i = from; i < Math.min(to, found); i++) {
    const r = pages.get(Math.floor(i / pageSize))?.[i % pageSize];
    rows.push(
      <div role="row" class="row" key={i} aria-rowindex={i + 2} style={{ top: i * size.row + "px", height: size.row + "px" }}
        onFocusIn={() => { at.current = i; }} onClick={(e) => open(e)}>
        {r ? p.row(r).map((cell, n) => <div role="cell" key={n} class={"cell c" + n}>{cell}</div>) : <div role="cell" class="cell loading">…</div>}
      </div>,
    );
  }
  return (
    <>
      <p class="status" role="status">{error ?? (last ? p.status(last) : "reading…")}</p>
      <div class="list" role="table" aria-label={p.label} aria-rowcount={found + 1}>
        <div role="row" class="row head" aria-rowindex={1}>
          {p.head.map((h, n) => <div role="columnheader" key={n} class={"cell c" + n}>{h}</div>)}
        </div>
        <div class="scroll" role="rowgroup" tabIndex={0} ref={box} onScroll={(e) => setTop(e.currentTarget.scrollTop)} aria-label={p.label}>
          {found > 0 ? rows : null}
          <div class="room" style={{ height: found * size.row + "px" }} role="presentation" />
        </div>
      </div>
    </>
  );
}

/** open follows the link of a row, wherever in it one clicks. */
function open(e: MouseEvent): void {
  const at = e.target as HTMLElement;
  if (at.closest("a, button") || getSelection()?.toString()) return;
  (e.currentTarget as HTMLElement).querySelector<HTMLAnchorElement>("a[data-item]")?.click();
}
