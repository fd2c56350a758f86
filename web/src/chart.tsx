// A chart over time, by uPlot, in the page's colours.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { useTheme } from "./theme";

interface Series { label: string; values: number[] }

export function Chart({ label, times, series, points }: { label: string; times: number[]; series: Series[]; points?: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const dark = document.documentElement.dataset["theme"];
  const plot = useRef<uPlot | undefined>(undefined);
  const data = [times, ...series.map((s) => s.values.map((v) => (Number.isNaN(v) ? null : v)))] as uPlot.AlignedData;
  const names = series.map((s) => s.label).join("\n");
  useEffect(() => {
    const at = box.current;
    if (!at) return;
    const colour = (name: string) => getComputedStyle(at).getPropertyValue(name).trim();
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const lines = series.map((s, i) => {
      const stroke = colour("--series-" + (1 + (i % 6)));
      return points ? { label: s.label, stroke, paths: () => null, points: { show: true, size: 5, fill: stroke } } : { label: s.label, stroke, width: 1.5 };
    });
    const fresh = new uPlot({
      width: at.clientWidth, height: 150, cursor: { y: false }, legend: { show: series.length > 1, live: false },
      axes: [{ ...axis, space: 80, values: (_, at) => at.map((t) => new Date(t * 1000).toLocaleTimeString("en-GB")) }, { ...axis, size: 44 }], scales: { y: { range: (_, __, max) => [0, Math.max(1, max * 1.1)] } },
      series: [{}, ...lines],
    }, data, at);
    plot.current = fresh;
    const watch = new ResizeObserver(() => fresh.setSize({ width: at.clientWidth, height: 150 }));
    watch.observe(at);
    return () => {
      watch.disconnect();
      fresh.destroy();
    };
  }, [theme, dark, names]);
  useEffect(() => plot.current?.setData(data), [times, series]);
  return <figure class="chart"><figcaption>{label}</figcaption><div ref={box} /></figure>;
}
