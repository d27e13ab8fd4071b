// Drawing: elements, and small charts over time. All text goes through textContent: nothing here parses markup.

/** el makes an HTML element; strings become text. */
export function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  set(e, attributes);
  e.append(...children);
  return e;
}

function svg(tag, attributes) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(e, attributes);
  return e;
}

function set(e, attributes) {
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
}

/** text changes the text of an element if it is another one, so that a selection survives. */
export function text(e, s) {
  if (e.textContent !== s) e.textContent = s;
}

// Lists keep their elements, so that what is open stays open and what is selected stays selected.

/** keyed makes the children of list those of items, in order. make builds one, update changes it. Of items with the same key, each has its own. */
export function keyed(list, items, key, make, update, stays = () => false) {
  const old = new Map([...list.children].map((e) => [e.dataset.key, e]));
  const taken = new Set();
  const wanted = items.map((item) => {
    let k = key(item);
    while (taken.has(k)) k += "\n"; // two things may have one name
    taken.add(k);
    let e = old.get(k);
    old.delete(k);
    if (!e) {
      e = make(item);
      e.dataset.key = k;
    }
    update?.(e, item);
    return e;
  });
  for (const e of old.values()) if (!stays(e)) e.remove();
  let before = null; // from the end, so that those that stay do not move
  for (const e of wanted.toReversed()) {
    if (e.nextElementSibling !== before || e.parentNode !== list) list.insertBefore(e, before);
    before = e;
  }
}

/** number writes x with about three digits, "–" where it is not known. */
export function number(x) {
  if (x === null || x === undefined) return "–";
  const a = Math.abs(x);
  if (a !== 0 && a < 0.001) return x.toExponential(0);
  if (a >= 100 || Number.isInteger(x)) return Math.round(x).toLocaleString("en");
  return String(Number(x.toPrecision(a < 0.1 ? 2 : 3)));
}

export const percent = (x) => (x === null || x === undefined ? "–" : x > 0 && x < 0.01 ? "<1 %" : `${Math.round(100 * x)} %`);

/** millis writes a duration given in milliseconds. */
export function millis(x) {
  if (x === null || x === undefined) return "–";
  if (x >= 120000) return `${number(x / 60000)} min`;
  if (x >= 1000) return `${number(x / 1000)} s`;
  if (x > 0 && x < 1) return `${number(x * 1000)} µs`;
  return `${number(x)} ms`;
}

/** bytes writes a size in memory. */
export function bytes(x) {
  const unit = x >= 1e9 ? 1e9 : x >= 1e6 ? 1e6 : 1e3;
  return `${number(Number((x / unit).toPrecision(3)))} ${{ 1e9: "GB", 1e6: "MB", 1e3: "kB" }[unit]}`;
}

/** clock writes a time of day; an instant of the server, in the zone of the reader. */
export function clock(t, fraction = 0) {
  return new Date(t).toLocaleTimeString("en-GB", { fractionalSecondDigits: fraction || undefined, hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

const width = 600, height = 120;

/**
 * Chart draws lines over time. series: [{label, line, of(point), area, step}], line being a class of style.css; write says
 * how values are written; top fixes the upper end; marks are levels to mark.
 */
export class Chart {
  constructor({ title, series, write = number, top = null, marks = [] }) {
    this.series = series;
    this.write = write;
    this.top = top;
    this.plot = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img" });
    this.marks = marks.map((level) => {
      const line = svg("line", { class: "mark", x1: 0, x2: width });
      this.plot.append(line);
      return { level, line };
    });
    this.paths = series.map((s) => {
      const area = s.area ? svg("path", { class: `area ${s.line}` }) : null;
      if (area) this.plot.append(area);
      return area;
    }).map((area, i) => {
      const line = svg("path", { class: `line ${series[i].line}` });
      this.plot.append(line);
      return { area, line };
    });
    this.hair = svg("line", { class: "hair", y1: 0, y2: height, visibility: "hidden" });
    this.plot.append(this.hair);
    this.values = series.map(() => el("b"));
    this.high = el("span", { class: "high", "aria-hidden": "true" });
    this.from = el("span", { class: "from" });
    this.to = el("span", { class: "to" }, "now");
    this.figure = el("figure", { class: "chart" },
      el("figcaption", {}, el("h3", {}, title),
        el("ul", { class: "legend" }, ...series.map((s, i) => el("li", { class: s.line }, el("i", { "aria-hidden": "true" }), `${s.label} `, this.values[i])))),
      el("div", { class: "plot" }, this.plot, this.high),
      el("p", { class: "axis", "aria-hidden": "true" }, this.from, this.to));
    this.title = title;
    this.points = [];
  }

  /** draw shows the points from t0 to t1; a gap longer than hole is left open. */
  draw(points, t0, t1, hole) {
    Object.assign(this, { points, t0, t1 });
    const x = (p) => (width * (p.t - t0)) / (t1 - t0);
    const columns = this.series.map((s) => points.map((p) => s.of(p)));
    let top = this.top;
    if (top === null) {
      let most = 0;
      for (const column of columns) for (const v of column) if (v > most) most = v;
      top = nice(most);
    }
    const y = (v) => height - 2 - (height - 6) * Math.min(1, Math.max(0, v / top));
    columns.forEach((column, i) => {
      const { area, line } = this.paths[i];
      let d = "", filled = "", run = "", first = 0, last = 0, before = null;
      const close = () => {
        if (run !== "") filled += `M${first} ${height}L${run.slice(1)}L${last} ${height}Z`;
        run = "";
      };
      column.forEach((v, j) => {
        if (v === null || v === undefined) { close(); before = null; return; }
        const p = points[j], px = x(p).toFixed(1), py = y(v).toFixed(1);
        const go = before !== null && p.t - before.t <= hole;
        if (!go) { close(); first = px; }
        const piece = go ? (this.series[i].step ? `L${px} ${before.py}L${px} ${py}` : `L${px} ${py}`) : `M${px} ${py}`;
        d += piece;
        run += go ? piece : `L${px} ${py}`;
        last = px;
        before = { t: p.t, py };
      });
      close();
      line.setAttribute("d", d);
      if (area) area.setAttribute("d", filled);
    });
    for (const { level, line } of this.marks) {
      line.setAttribute("y1", y(level));
      line.setAttribute("y2", y(level));
    }
    text(this.high, this.write(top));
    const seconds = Math.round((t1 - t0) / 1000), minutes = Math.round(seconds / 60);
    text(this.from, seconds === 120 || seconds >= 180 ? `${minutes} min ago` : `${seconds} s ago`);
    this.point(null);
  }

  /** point shows the values at time t, or, for null, the last ones. */
  point(t) {
    let at = this.points.length - 1;
    if (t !== null) {
      at = this.points.findIndex((p) => p.t >= t);
      if (at < 0) at = this.points.length - 1;
    }
    const p = this.points[at];
    this.series.forEach((s, i) => text(this.values[i], p ? this.write(s.of(p)) : "–"));
    const when = t === null || !p ? "" : ` at ${clock(p.t, 1)}`;
    this.plot.setAttribute("aria-label", `${this.title}${when}: ` + this.series.map((s, i) => `${s.label} ${this.values[i].textContent}`).join(", "));
    if (t === null || !p) {
      this.hair.setAttribute("visibility", "hidden");
      text(this.to, "now");
      return;
    }
    const px = (width * (p.t - this.t0)) / (this.t1 - this.t0);
    this.hair.setAttribute("x1", px);
    this.hair.setAttribute("x2", px);
    this.hair.setAttribute("visibility", "visible");
    text(this.to, clock(p.t, 1));
  }

  /** timeAt is the time under a pointer. */
  timeAt(event) {
    const box = this.plot.getBoundingClientRect();
    return this.t0 + ((event.clientX - box.left) / box.width) * (this.t1 - this.t0);
  }
}

/** nice is a round number at or above x, at least 1. */
function nice(x) {
  if (x <= 1) return 1;
  const unit = 10 ** Math.floor(Math.log10(x));
  return unit * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((n) => n * unit >= x - 1e-9 * unit);
}

/** Bar shows one load against marks: how much of a capacity is in use. */
export class Bar {
  constructor() {
    this.own = svg("rect", { class: "own", x: 0, y: 0, height: 10 });
    this.over = svg("rect", { class: "over", y: 0, height: 10 });
    this.mark = svg("line", { class: "mark", y1: 0, y2: 10 });
    this.svg = svg("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img" });
    this.svg.append(this.own, this.over, this.mark);
  }

  /** draw fills own of whole, then over, and marks one value; label says the same in words. */
  draw({ own, over = 0, whole, mark = null, label }) {
    const part = (v) => (whole > 0 ? Math.min(100, (100 * v) / whole) : 0);
    this.own.setAttribute("width", part(own));
    this.over.setAttribute("x", part(own));
    this.over.setAttribute("width", Math.max(0, part(own + over) - part(own)));
    this.mark.setAttribute("visibility", mark === null ? "hidden" : "visible");
    for (const end of ["x1", "x2"]) this.mark.setAttribute(end, part(mark ?? 0));
    this.svg.setAttribute("aria-label", label);
  }
}
