// Charts: lines over time from the history, drawn by uPlot, kept up to date as the cluster is looked at.

const root = document.documentElement;
const charts = [];

const probe = document.createElement("i");
document.body.append(probe);

function color(name, alpha) {
  probe.style.color = "var(" + name + ")";
  const found = getComputedStyle(probe).color;
  return alpha ? found.replace("rgb(", "rgba(").replace(")", ", " + alpha + ")") : found;
}

const UNITS = {
  rate: (v) => short(v) + "/s",
  count: short,
  seconds: (v) => (v >= 172800 ? (v / 86400).toFixed(1) + " d" : v >= 5400 ? (v / 3600).toFixed(1) + " h" : v >= 90 ? (v / 60).toFixed(1) + " min" : (v < 10 && v % 1 ? v.toFixed(1) : Math.round(v)) + " s"),
  percent: (v) => Math.round(v * 100) + " %",
};

function short(v) {
  const a = Math.abs(v);
  if (a >= 1e9) return +(v / 1e9).toPrecision(3) + "G";
  if (a >= 1e6) return +(v / 1e6).toPrecision(3) + "M";
  if (a >= 1e4) return +(v / 1e3).toPrecision(3) + "k";
  return a < 10 && v % 1 ? v.toFixed(a < 1 ? 2 : 1) : Math.round(v).toLocaleString("en");
}

class Chart {
  constructor(box) {
    this.box = box;
    this.units = (box.dataset.units || "count").split(",").map((name) => UNITS[name]);
    this.labels = box.dataset.labels.split("|");
    this.plot = null;
    this.load();
  }

  async load() {
    if (!this.box.isConnected || document.hidden) return;
    try {
      const answer = await fetch(this.box.dataset.src, { headers: { accept: "application/json" } });
      if (!answer.ok) return;
      const found = await answer.json();
      this.data = [found.times, ...found.lines.map((line) => line.values)];
      this.draw();
    } catch { /* the next look tries again */ }
  }

  draw() {
    const waiting = this.box.querySelector(".waiting");
    if (this.data[0].length < 2) { if (waiting) waiting.hidden = false; return; }
    if (waiting) waiting.hidden = true;
    const size = { width: this.box.clientWidth, height: this.box.clientHeight };
    if (this.plot && this.dark === root.dataset.theme) {
      this.plot.setSize(size);
      this.plot.setData(this.data);
      return;
    }
    this.plot?.destroy();
    this.dark = root.dataset.theme;
    const axis = { stroke: color("--muted"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const two = this.units.length > 1 && this.units[0] !== this.units[1];
    const scale = (index) => (two && index ? "y2" : "y");
    const whole = (u, min, max) => [0, max > 0 ? max * 1.12 : 1];
    this.plot = new uPlot({
      ...size,
      padding: [8, two ? 4 : 12, 0, 0],
      legend: { show: false },
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      scales: { x: { time: true }, y: { range: whole }, y2: { range: whole } },
      axes: [
        { ...axis, size: 30, space: 80, values: (u, ticks) => ticks.map((t) => new Date(t * 1000).toLocaleTimeString(root.lang, { hour: "2-digit", minute: "2-digit" })) },
        { ...axis, size: 56, scale: "y", values: (u, ticks) => ticks.map((v) => this.units[0](v)) },
        ...(two ? [{ ...axis, size: 56, side: 1, scale: "y2", grid: { show: false }, values: (u, ticks) => ticks.map((v) => this.units[1](v)) }] : []),
      ],
      series: [{}, ...this.labels.map((label, index) => ({
        label,
        scale: scale(index),
        stroke: color("--chart-" + (index + 1)),
        width: 2,
        fill: index ? undefined : color("--chart-1", 0.1),
        points: { show: false },
        spanGaps: false,
      }))],
      hooks: { setCursor: [(u) => this.tip(u)] },
    }, this.data, this.box);
    this.note = document.createElement("div");
    this.note.className = "tip";
    this.note.hidden = true;
    this.box.append(this.note);
  }

  tip(u) {
    const { idx, left } = u.cursor;
    if (!this.note) return;
    if (idx == null || left < 0) { this.note.hidden = true; return; }
    const parts = [new Date(this.data[0][idx] * 1000).toLocaleTimeString(root.lang)];
    this.labels.forEach((label, index) => {
      const value = this.data[index + 1][idx];
      const unit = this.units[Math.min(index, this.units.length - 1)];
      parts.push(label + " " + (value == null ? "–" : unit(value)));
    });
    this.note.textContent = parts.join("  ·  ");
    this.note.hidden = false;
    const at = u.bbox.left / devicePixelRatio + left;
    this.note.style.top = "0px";
    this.note.style.left = Math.max(0, Math.min(at + 10, this.box.clientWidth - this.note.offsetWidth)) + "px";
  }
}

function find() {
  for (const box of document.querySelectorAll(".chart[data-src]")) {
    if (!charts.some((chart) => chart.box === box)) charts.push(new Chart(box));
  }
}

find();
document.addEventListener("sse:sample", () => { for (const chart of charts) chart.load(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) for (const chart of charts) chart.load(); });
document.addEventListener("theme", () => { for (const chart of charts) if (chart.data) chart.draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const chart of charts) if (chart.data) { chart.dark = null; chart.draw(); } });
addEventListener("resize", () => { for (const chart of charts) if (chart.plot) chart.draw(); });
