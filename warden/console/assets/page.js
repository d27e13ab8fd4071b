// The page: keeps the past that the stream sends piece by piece, and shows it. Whatever a name holds stays text.

import { Bar, Chart, bytes, clock, el, keyed, millis, number, percent, text } from "./draw.js";
import { Table } from "./table.js";

const $ = (id) => document.getElementById(id);

let state = null;     // the last one
let points = [];      // of the warden
let looks = [];       // of limiters and compartments
let keep = 600;       // how many points
let paused = false;
let heard = 0;        // when the last state came, by performance.now
let trouble = "";     // why there is no stream

// ---- What came

function take(s, whole) {
  const known = whole ? 0 : points.at(-1)?.seq ?? 0;
  const fresh = s.history.filter((p) => p.seq > known);
  if (whole) {
    points = [];
    looks = [];
    keep = Math.max(600, fresh.length);
  }
  for (const p of fresh) points.push({ ...p, t: Date.parse(p.at) });
  points.splice(0, points.length - keep);
  rate(points, fresh.length);
  for (const p of s.pools) looks.push({ ...p, t: Date.parse(p.at) });
  looks.splice(0, looks.length - 300);
  state = s;
  heard = performance.now();
  if (!paused) show();
}

/** rate gives the last fresh points how much was done and rejected per second, over about a second. */
function rate(list, fresh) {
  for (let i = Math.max(0, list.length - fresh); i < list.length; i++) {
    const p = list[i];
    let j = i;
    while (j > 0 && p.t - list[j].t < 950) j--;
    const dt = (p.t - list[j].t) / 1000;
    p.done = dt > 0 ? (p.executed - list[j].executed) / dt : null;
    p.rejects = dt > 0 ? (p.rejected - list[j].rejected) / dt : null;
    p.fails = dt > 0 ? (p.failed - list[j].failed) / dt : null;
    p.leaves = dt > 0 ? (p.canceled + p.abandoned - list[j].canceled - list[j].abandoned) / dt : null;
  }
}

/** usual is the usual time between points, in milliseconds. */
function usual(list, otherwise) {
  const gaps = list.slice(1).map((p, i) => p.t - list[i].t).sort((a, b) => a - b);
  return gaps.length > 2 ? Math.max(1, gaps[gaps.length >> 1]) : otherwise;
}

// ---- Showing

function show() {
  const s = state;
  text($("title"), s.title);
  text($("instance"), s.instance);
  const said = s.verdicts[0]?.level ?? "ok", left = letters && (letters.trouble || letters.waiting > letters.parked);
  const worst = said === "ok" && left ? "watch" : said;
  document.title = `${{ ok: "ok", watch: "watch", act: "act" }[worst] ?? worst} · ${s.title}${s.instance && ` · ${s.instance}`}`;
  text($("about"), `JSON schema version ${s.version}.`);
  $("no-data").hidden = true;
  verdicts(s);
  warden(s);
  compartments(s);
  limiters(s);
  rejections(s.rejections);
  decisions(s);
  status();
}

function verdicts(s) {
  $("verdicts").tabIndex = s.verdicts.length > 6 ? 0 : -1; // more than that scroll
  const table = s.set && crowded(s.set.compartments) ? "#set" : "#limiters";
  keyed($("verdicts"), s.verdicts, (v) => v.subject,
    () => el("li", {}, el("b", { class: "level" }), el("bdi", { class: "subject" }), el("p", { class: "say" }, el("span"), " ", el("a", {}, "See the table."))),
    (e, v) => {
      e.dataset.level = v.level;
      text(e.children[0], v.level);
      text(e.children[1], v.subject);
      e.children[1].title = v.subject;
      const [said, link] = e.children[2].children;
      text(said, v.text);
      link.href = table;
      link.hidden = v.more === 0;
    });
}

const charts = {
  tasks: new Chart({ title: "Tasks", series: [
    { label: "in flight", line: "s-blue", area: true, of: (p) => p.in_flight },
    { label: "queued", line: "s-orange", of: (p) => p.queued },
    { label: "limit", line: "s-ink dashed", step: true, of: (p) => p.target }] }),
  outcome: new Chart({ title: "Outcome per second", series: [
    { label: "done", line: "s-green", area: true, of: (p) => p.done },
    { label: "rejected", line: "s-red", area: true, of: (p) => p.rejects },
    { label: "left", line: "s-orange", of: (p) => p.leaves },
    { label: "failed", line: "s-violet", of: (p) => p.fails }] }),
  pressure: new Chart({ title: "Pressure", top: 1, write: (x) => (x === null ? "–" : x.toFixed(2)), marks: [0.35, 0.5, 0.8], series: [
    { label: "pressure", line: "s-violet", area: true, of: (p) => p.pressure },
    { label: "shed", line: "s-red", of: (p) => p.shed }] }),
  levels: new Chart({ title: "Pressure by signal", top: 1, write: (x) => (x === undefined || x === null ? "–" : x.toFixed(2)), marks: [0.5], series: [
    { label: "lag p90", line: "s-violet", of: (p) => p.levels.lag_p90_seconds ?? null },
    { label: "lag p50", line: "s-blue dashed", of: (p) => p.levels.lag_p50_seconds ?? null },
    { label: "runnable", line: "s-green", of: (p) => p.levels.runnable_per_processor ?? null },
    { label: "throttled", line: "s-red", of: (p) => p.levels.throttled_share ?? null },
    { label: "utilization", line: "s-orange", of: (p) => p.levels.utilization ?? null }] }),
  lag: new Chart({ title: "Scheduler latency", write: millis, series: [
    { label: "p50", line: "s-blue", area: true, of: (p) => p.lag_p50_ms },
    { label: "p90", line: "s-violet", of: (p) => p.lag_p90_ms },
    { label: "p99", line: "s-ink dashed", of: (p) => p.lag_p99_ms }] }),
  service: new Chart({ title: "Execution time", write: millis, series: [
    { label: "p50", line: "s-blue", area: true, of: (p) => p.service_p50_ms },
    { label: "p90", line: "s-violet", of: (p) => p.service_p90_ms }] }),
};
for (const c of Object.values(charts)) {
  $("charts").append(c.figure);
  c.plot.addEventListener("pointermove", (event) => pointAll(c.timeAt(event)));
  c.plot.addEventListener("pointerleave", () => pointAll(null));
}
let pointed = null;
function pointAll(t) {
  pointed = t;
  for (const c of Object.values(charts)) c.point(t);
}
$("charts").addEventListener("keydown", (event) => {
  const last = charts.tasks.points.at(-1)?.t, first = charts.tasks.points[0]?.t;
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], to = { Home: first, End: null, Escape: null }[event.key];
  if (last === undefined || (step === undefined && to === undefined)) return;
  event.preventDefault();
  const t = step ? Math.max(first, (pointed ?? last) + step * 1000) : to;
  pointAll(t !== null && t < last ? t : null);
});
$("charts").addEventListener("blur", () => pointAll(null));

/** showTiles shows tiles: [name, value, hint, level]. */
function showTiles(dl, tiles) {
  keyed(dl, tiles, (t) => t[0], (t) => el("div", {}, el("dt", {}, t[0]), el("dd", { class: "value" }), el("dd", { class: "hint" })),
    (e, t) => {
      e.dataset.level = t[3] ?? "";
      text(e.children[1], t[1]);
      text(e.children[2], t[2]);
    });
}

/** priorities are the tiles of what was not served, of each priority: amber from one percent. */
function priorities(w) {
  return ["critical", "high", "normal", "background"].map((name) => {
    const { tasks, rejected, left, failed } = w.recent?.priorities[name] ?? { tasks: 0, rejected: 0, left: 0, failed: 0 };
    const errors = tasks > 0 ? (rejected + left + failed) / tasks : null;
    return [`Errors, ${name}`, percent(errors), tasks > 0 ? `${number(rejected)} rejected, ${number(left)} left, ${number(failed)} failed, of ${number(tasks)}` : "no tasks in 10 s", errors >= 0.01 ? "watch" : ""];
  });
}

/** process are the tiles of the process, as far as they are known. */
function process(w) {
  const { processor_share: share, memory_live: live, memory_limit: limit, pools, remote } = w.process;
  const because = (code) => (w.decision?.reasons.some((r) => r.code === code) ? "watch" : "");
  const full = (p) => p.problem !== "" || p.waiting > 0 || (p.max > 0 && p.in_use >= p.max);
  const worst = pools.toSorted((a, b) => full(b) - full(a) || b.in_use / (b.max || 1) - a.in_use / (a.max || 1)).slice(0, 4);
  return [
    ...(remote || share === null ? [] : [["Processor share", percent(share), "of what it could use", because("starved")]]),
    ...(remote || live === null ? [] : [["Memory in use", bytes(live), limit === null ? "no limit known" : `limit ${bytes(limit)}`, because("memory")]]),
    ...worst.map((p) => [`Pool ${p.name}`, p.max > 0 ? `${number(p.in_use)} of ${number(p.max)}` : number(p.in_use),
      p.problem ? `not read: ${p.problem}` : p.waiting === null ? "in use" : `${number(p.waiting)} wait`, full(p) ? "watch" : ""]),
  ];
}

/** running lists tasks that hold slots, the oldest first. */
function running(ol, tasks) {
  keyed(ol, tasks.map((r, i) => ({ r, i })), (x) => String(x.i), () => el("li", {}, el("b"), " ", el("bdi", { class: "task" }), " ", el("span", { class: "aside" }), " ", el("bdi", { class: "reason" })),
    (e, { r }) => {
      text(e.children[0], millis(r.for_ms));
      text(e.children[1], r.task || "(no name)");
      e.children[1].title = r.task;
      text(e.children[2], r.priority);
      text(e.children[3], r.request_id);
    });
}

function warden(s) {
  $("warden").hidden = $("decided").hidden = !s.warden;
  if (!s.warden) return;
  const w = s.warden, last = points.at(-1) ?? {};
  const tiles = [
    ["In flight", number(w.in_flight), `concurrency limit ${number(w.target)}`],
    ["Queued", number(w.queued), "waiting for a slot"],
    ["Shed", percent(w.decision?.shed ?? 0), "of what would have to queue"],
    ...(w.process.remote ? [] : [["Pressure", last.pressure === undefined || last.pressure === null ? "–" : last.pressure.toFixed(2), "limit falls above 0.50"]]),
    ["Rejected", `${number(last.rejects ?? 0)}/s`, `${number(w.rejected)} since the start`],
    ["Done", `${number(last.done ?? 0)}/s`, `${number(w.executed)} since the start`],
    ["Execution p50", millis(last.service_p50_ms), `p90 ${millis(last.service_p90_ms)}`],
    ...(w.process.remote ? [] : [["Utilization", percent(last.utilization), "of the CPU allowed"]]),
  ];
  for (const c of [charts.pressure, charts.levels, charts.lag]) c.figure.hidden = w.process.remote;
  showTiles($("tiles"), tiles);
  showTiles($("shares"), [...priorities(w), ...process(w)]);
  const long = w.running.filter((r) => r.for_ms >= 1000);
  $("longest").hidden = long.length === 0;
  running($("running"), long);
  const { min, max, max_queue: queue, timeout_ms: timeout, changed_at: at, changed_by: by } = w.bounds;
  text($("bounds"), (max === null ? "" : `Concurrency limit ${number(min)} to ${number(max)}. `) + `At most ${number(queue)} queued.` + (timeout ? ` Timeout ${millis(timeout)}.` : "") +
    changed(s, by, at));
  const gap = usual(points, 100), t1 = Date.parse(s.at), t0 = t1 - gap * keep;
  const shown = points.filter((p) => p.t >= t0);
  for (const c of Object.values(charts)) c.draw(shown, t0, t1, Math.max(2000, 10 * gap));
  if (pointed !== null) pointAll(pointed);
}

// ---- Limiters and compartments

const past = new WeakMap(); // card -> its chart and bar

function card() {
  const bar = new Bar();
  const chart = new Chart({ title: "Lately", series: [
    { label: "in flight", line: "s-blue", area: true, of: (p) => p.in_flight },
    { label: "queued", line: "s-orange", of: (p) => p.queued },
    { label: "rejected/s", line: "s-red", of: (p) => p.rejects }] });
  const e = el("article", { class: "card" },
    el("h3", {}, el("bdi", { class: "name" }), el("b", { class: "level" })),
    bar.svg, el("p", { class: "caption" }), el("dl", { class: "facts" }), el("ol", { class: "running" }), chart.figure,
    el("details", {}, el("summary", {}, "Since the start"), el("dl", { class: "facts" })));
  past.set(e, { bar, chart });
  return e;
}

/** crowded says that there are too many things for a card each. */
const crowded = (items) => items.length > 11;

const worst = { act: 2, watch: 1, ok: 0 };
const column = (title, of, write = (item) => number(of(item))) => ({ title, of: (item) => of(item) ?? -1, write });
const name = column("Name", (x) => x.name, (x) => x.name), level = column("Level", (x) => worst[x.level], (x) => x.level);
const oldest = column("Oldest", (x) => x.oldest_running_ms, (x) => millis(x.oldest_running_ms));
const queued = column("Queued", (x) => x.queued);

const tables = {
  compartments: crowdOf($("compartment-table"), "Compartments", [name, level,
    column("In flight", (c) => c.in_flight, (c) => `${number(c.in_flight)} of ${number(c.effective_max)}`), queued,
    column("Rejected, 1 min", (c) => c.rejection_rate, (c) => percent(c.rejection_rate)),
    column("p99, 1 min", (c) => c.execution_p99_ms, (c) => millis(c.execution_p99_ms)), oldest,
    column("Criticality", (c) => c.criticality, (c) => c.criticality_name)],
  (a, b) => b.criticality - a.criticality || b.rejection_rate - a.rejection_rate),
  limiters: crowdOf($("limiter-table"), "Limiters", [name, level,
    column("In flight", (l) => l.in_flight, (l) => `${number(l.in_flight)} of ${number(l.target)}`), queued,
    column("Rejected, 10 s", (l) => l.recent?.rejected), column("Left, 10 s", (l) => l.recent && l.recent.canceled + l.recent.abandoned),
    column("Failed, 10 s", (l) => l.recent?.failed), oldest],
  (a, b) => (b.recent?.rejected ?? 0) - (a.recent?.rejected ?? 0)),
};

function crowdOf(box, label, columns, order) {
  const crowd = { box, order, picked: null };
  crowd.table = new Table({ label, columns, key: (x) => x.name, pick: (row) => {
    crowd.picked = crowd.picked === row.textContent ? null : row.textContent;
    if (state) show();
    document.querySelector(`#${box.id} + .cards > *`)?.scrollIntoView({ block: "nearest" });
  } });
  box.append(crowd.table.element);
  return crowd;
}

/** crowd shows many items as a table, and returns those that get a card. */
function crowd({ box, order, table, picked }, items) {
  const many = crowded(items);
  box.hidden = !many;
  if (!many) return items;
  table.draw(items.toSorted(order), picked);
  return items.filter((item) => item.name === picked);
}

function facts(dl, pairs) {
  keyed(dl, pairs, (p) => p[0], (p) => el("div", {}, el("dt", {}, p[0]), el("dd")), (e, p) => text(e.children[1], p[1]));
}

function fill(e, { key, name, level, bar, caption, now, longest = [], since }) {
  const { bar: b, chart } = past.get(e);
  const [head, , note, dl, ol, , details] = e.children;
  text(head.children[0], name);
  text(head.children[1], level ?? "");
  head.children[1].hidden = !level;
  e.dataset.level = level ?? "";
  b.draw(bar);
  text(note, caption);
  facts(dl, now);
  running(ol, longest);
  facts(details.children[1], since);
  const list = looks.filter((l) => l.pools[key]).map((l) => ({ t: l.t, ...l.pools[key] }));
  rate(list, list.length);
  chart.figure.hidden = list.length === 0;
  const gap = usual(looks, state.interval_ms), t1 = Date.parse(state.at);
  chart.draw(list, t1 - 120 * gap, t1, 5 * gap);
}

// changed says who made a change, and when.
function changed(s, by, at) {
  return at ? ` Changed${by ? ` by ${by}` : ""} at ${Date.parse(s.at) - Date.parse(at) < 86400e3 ? clock(at) : at.slice(0, 10)}.` : "";
}

function compartments(s) {
  $("set").hidden = !s.set;
  if (!s.set) return;
  const { total, effective_total: left, in_flight: running, revision, stale, resized_by: by, resized_at: at } = s.set;
  text($("set-sum"), `${number(running)} of ${number(left)} slots in flight` +
    (left < total ? `; the controller leaves ${number(left)} of ${number(total)}` : "") + (stale ? " (its decision is stale)" : "") + `. Plan revision ${revision}.` + changed(s, by, at));
  $("set-proposal").hidden = s.set.proposal.length === 0;
  text($("set-proposal"), `Proposed, and not applied: ${s.set.proposal.join("; ")}.`);
  const many = crowded(s.set.compartments);
  keyed($("compartments"), crowd(tables.compartments, s.set.compartments), (c) => c.name, card, (e, c) => {
    const own = Math.min(c.in_flight, c.effective_guaranteed), over = c.in_flight - own;
    fill(e, {
      key: `compartment:${c.name}`, name: c.name, level: c.level,
      bar: { own, over, whole: Math.max(c.effective_max, c.in_flight), mark: c.effective_guaranteed < c.effective_max ? c.effective_guaranteed : null,
        label: `${c.in_flight} in flight, ${c.effective_guaranteed} guaranteed, ${c.effective_max} at most` },
      caption: `${number(c.in_flight)} in flight, ${number(c.effective_guaranteed)} guaranteed` +
        (c.effective_guaranteed < c.guaranteed ? ` (planned ${number(c.guaranteed)})` : "") + `, ${number(c.effective_max)} at most` +
        (many && c.text ? `. ${c.text}` : c.healthy ? "" : `. ${c.unhealthy}`),
      now: [
        ["lent", number(c.lent)], ["borrowed", number(c.borrowed)],
        ["queued", `${number(c.queued)} of ${number(c.max_queue)}`], ["rejected, 1 min", percent(c.rejection_rate)],
        ["p50, 1 min", millis(c.execution_p50_ms)], ["p99, 1 min", millis(c.execution_p99_ms)],
        ...(c.oldest_running_ms >= 1000 ? [["oldest", millis(c.oldest_running_ms)]] : []),
        ...(c.mode !== "enforce" ? [["mode", c.mode]] : []), ...(c.without_slot ? [["without a slot", number(c.without_slot)]] : []),
        ...(c.abandoned ? [["abandoned", number(c.abandoned)]] : []), ...(c.tenants ? [["tenants", number(c.tenants.keys)]] : []),
      ],
      since: [
        ["criticality", c.criticality_name], ["calls", number(c.submitted)], ["rejected", number(c.rejected_total)], ...reasons(c.rejected, "on arrival: "),
        ...reasons(c.left, "left the queue: "), ...reasons(c.would_reject, "dry run: "), ...reasons(c.outcomes, "answered: "), ["degraded (fallback)", number(c.degraded)], ["fallbacks failed", number(c.fallbacks_failed)],
        ["fallbacks rejected", number(c.fallbacks_rejected)], ["abandoned", number(c.abandoned_total)], ["late panics", number(c.late_panics)],
        ...(c.tenants ? [["tenants active", number(c.tenants.active)], ["evicted", number(c.tenants.evicted)], ["overflowed", number(c.tenants.overflowed)]] : []),
      ],
    });
  });
}

function limiters(s) {
  $("limiters").hidden = s.limiters.length === 0;
  const many = crowded(s.limiters);
  keyed($("limiter-cards"), crowd(tables.limiters, s.limiters), (l) => l.name, card, (e, l) => {
    fill(e, {
      key: `limiter:${l.name}`, name: l.name, level: l.level,
      bar: { own: l.in_flight, whole: Math.max(l.target, l.in_flight), label: `${l.in_flight} of ${l.target} in flight` },
      caption: `${number(l.in_flight)} of ${number(l.target)} in flight${many ? `. ${l.text}` : ""}`,
      longest: l.running.filter((r) => r.for_ms >= 1000),
      now: [["queued", number(l.queued)], [l.recent ? `rejected, ${number(Math.round(l.recent.seconds))} s` : "rejected lately", l.recent ? number(l.recent.rejected) : "–"],
        ["left", l.recent ? number(l.recent.canceled + l.recent.abandoned) : "–"], ["failed", l.recent ? number(l.recent.failed) : "–"], ...(l.mode !== "enforce" ? [["mode", l.mode]] : [])],
      since: [["done", number(l.executed)], ["rejected", number(l.rejected)], ...reasons(l.by_reason, ""), ...reasons(l.would_reject, "dry run: ")],
    });
  });
}

const reasons = (counts, before) => Object.entries(counts).sort((a, b) => b[1] - a[1]).map(([reason, n]) => [before + reason, number(n)]);

// ---- Rejections and decisions

/** rejections groups the last ones by limiter and reason, the most frequent first. */
function rejections(list) {
  text($("no-rejections"), "Nothing rejected.");
  const groups = new Map();
  for (const r of list) {
    const key = JSON.stringify([r.limiter, r.reason, r.outcome === "started"]);
    const group = groups.get(key) ?? { key, list: [], ...counted(r) };
    group.list.push(r);
    groups.set(key, group);
  }
  const sorted = [...groups.values()].sort((a, b) => b.all - a.all);
  keyed($("rejections"), sorted, (g) => g.key,
    () => {
      const e = el("details", { class: "group" },
        el("summary", {}, el("b"), " ", el("bdi", { class: "task" }), " ", el("code", { class: "reason" }), " ", el("span", { class: "why" }), " ", el("span", { class: "aside" })),
        el("div"));
      e.addEventListener("toggle", () => { if (!e.lastChild.firstChild) rejections(state.rejections); });
      return e;
    },
    (e, g) => {
      const last = g.list[0], [n, of, code, why, aside] = e.firstChild.children;
      text(n, `${number(g.all)} ×`);
      text(of, last.limiter);
      text(code, last.reason);
      why.classList.toggle("left", last.outcome !== "rejected");
      text(why, (last.outcome === "started" ? "dry run: " : "") + last.why);
      text(aside, (g.recent === null ? "" : `${number(g.recent)} in 10 s, `) + `last ${clock(last.at)}`);
      if (e.open) keyed(e.lastChild, g.list, (r) => r.id, rejection, null, (r) => r.open);
    }, (e) => e.open);
  $("no-rejections").hidden = $("rejections").childElementCount > 0;
}

const ofCompartment = (r) => (r.limiter === state?.warden?.name ? undefined : state?.set?.compartments.find((c) => c.name === r.limiter));

/** counted is how many were rejected as r was: all since the start, and those of the last seconds, null where nobody knows. */
function counted({ limiter, reason, outcome }) {
  const c = ofCompartment({ limiter }), dry = outcome === "started";
  if (c) return { all: dry ? c.would_reject[reason] ?? 0 : (c.rejected[reason] ?? 0) + (c.left[reason] ?? 0), recent: null };
  const l = [state.warden, ...state.limiters].find((x) => x?.name === limiter), of = dry ? "would_reject" : "by_reason";
  return { all: l?.[of][reason] ?? 0, recent: l?.recent ? l.recent[of][reason] ?? 0 : null };
}

function rejection(r) {
  const d = r.decision, ofSet = ofCompartment(r) !== undefined;
  return el("details", { class: "rejection" },
    el("summary", {},
      el("time", { datetime: r.at }, clock(r.at, 3)), " ",
      el("bdi", { class: "task" }, r.task || r.limiter), " ",
      el("span", { class: `why ${r.outcome === "rejected" ? "" : "left"}` }, r.outcome === "started" ? "dry run: " : "", r.why), " ",
      el("code", { class: "reason" }, r.reason), " ",
      el("span", { class: "aside" }, r.task ? `${r.limiter}, ` : "", r.priority_name)),
    list([
      ["Task", r.task || "(no name)"],
      ["Request", r.request_id || "(no id)"],
      ["Priority", r.priority_name === String(r.priority) ? r.priority_name : `${r.priority_name} (${r.priority})`],
      ["Deadline", r.deadline ? `${clock(r.deadline, 3)} (${away(r.deadline, r.at)})` : "none"],
      ["Queue wait", millis(r.waited_ms)],
      [ofSet ? "Compartment" : "Limiter", `${r.limiter}: ${number(r.in_flight)} in flight, ${number(r.queued)} queued then` + (r.bound ? `; ${r.bound} ${number(r.limit)} reached` : "")],
      ["Shedding", r.shed_below === null ? "no whole priority" : `all below priority ${r.shed_below} that would have to queue`],
      ...(d ? [
        ["Controller", `then: decision ${d.seq}, ${r.decision_state}${d.at ? `, of ${clock(d.at, 3)}` : ""}`],
        [ofSet ? "All slots" : "Limit", `${number(d.target)}, shed ${percent(d.shed)}`],
        ["Expected", d.expected_ms === null ? "unknown" : `a task takes ${millis(d.expected_ms)}`],
        ["Its grounds", d.reasons.map(because).join("; ") || "none given"],
      ] : []),
    ]),
    el("p", { class: "whole" }, r.text));
}

const list = (pairs) => el("dl", { class: "all" }, ...pairs.map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, v))));

const because = (r) => `${r.text} (${r.code})`;

function away(t, from) {
  const d = Date.parse(t) - Date.parse(from);
  return d < 0 ? `${millis(-d)} before` : `${millis(d)} later`;
}

// ---- Finding one rejection by the request ID that its client got

let sought = 0;

/** find shows what is known of a request's id, or of a decision's number. The address has it, so that it can be sent to somebody. */
async function find(what) {
  const mine = ++sought;
  const query = what && `?find=${encodeURIComponent(what)}`;
  history.replaceState(null, "", location.pathname + query);
  let answer = { text: "", rejections: [] };
  if (what) {
    try {
      const r = await fetch(`rejections.json${query}`);
      answer = r.ok ? await r.json() : { ...answer, text: `The console did not search: status ${r.status}. Try again.` };
    } catch {
      answer.text = "The console does not answer. Try again.";
    }
  }
  if (mine !== sought) return;
  text($("found-text"), answer.text);
  $("found").replaceChildren(...answer.rejections.map((r, i) => {
    const e = rejection(r);
    e.open = i === 0;
    return e;
  }));
}

$("find").addEventListener("submit", (event) => {
  event.preventDefault();
  find($("what").value.trim());
});
$("what").value = new URLSearchParams(location.search).get("find") ?? "";
if ($("what").value) find($("what").value.trim());

function decisions(s) {
  $("no-decisions").hidden = s.decisions.length > 0;
  const change = (from, to, write) => (from === to || write(from) === write(to) ? write(to) : `${write(from)} → ${write(to)}`);
  keyed($("decisions"), s.decisions, (p) => String(p.first_seq),
    () => el("li", {}, el("time"), el("span", { class: "change" }), el("ul", { class: "because" })),
    (e, p) => {
      e.dataset.direction = p.reasons.some((r) => r.direction === "tighten") ? "tighten" : p.reasons[0]?.direction ?? "hold";
      e.children[0].setAttribute("datetime", p.from);
      text(e.children[0], clock(p.from) === clock(p.to) ? clock(p.from) : `${clock(p.from)} – ${clock(p.to)}`);
      text(e.children[1], `limit ${change(p.target_from, p.target_to, number)}, shed ${change(p.shed_from, p.shed_to, percent)}`);
      keyed(e.children[2], p.reasons.map((r, i) => ({ r, i })), (x) => String(x.i), () => el("li"), (li, x) => text(li, because(x.r)));
    });
}

// ---- Dead letters, which are asked for by themselves: who keeps them may be far away

let letters = null; // the last answer

function deadLetters() {
  if (!letters || paused) return;
  const { trouble, waiting, parked, oldest, letters: some, at } = letters;
  $("letters").hidden = false;
  $("letters").dataset.level = trouble ? "act" : waiting > parked ? "watch" : "ok";
  text($("letters-sum"), trouble ? `Not known at ${clock(at)}: ${trouble}` : waiting === 0 ? `None at ${clock(at)}.` :
    `${number(waiting)} at ${clock(at)}, ${number(parked)} of them parked` + (oldest ? `; the oldest was given up ${age(oldest, at)} ago` : "") +
    (some.length < waiting ? `. The first ${number(some.length)} are listed` : "") + ". To read, replay, park or discard: leasectl.");
  keyed($("letter-list"), some, (l) => l.id,
    () => el("li", {}, el("time"), el("bdi", { class: "task" }), el("bdi", { class: "key" }), el("bdi", { class: "failure" }), el("span", { class: "aside" })),
    (e, l) => {
      e.children[0].setAttribute("datetime", l.at || ""); // null: not known
      text(e.children[0], !l.at ? "" : Date.parse(at) - Date.parse(l.at) < 86400e3 ? clock(l.at) : l.at.slice(0, 10));
      text(e.children[1], l.id);
      text(e.children[2], l.key);
      text(e.children[3], l.failure || "(how it failed is not known)");
      text(e.children[4], (l.attempts ? `${number(l.attempts)} attempt${l.attempts > 1 ? "s" : ""}` : "") + (l.parked ? `${l.attempts ? ", " : ""}parked: ${l.note || "no note"}` : ""));
    });
}

function age(t, now) {
  const s = Math.max(0, (Date.parse(now) - Date.parse(t)) / 1000);
  return s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.round(s / 60)} min` : s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

async function askLetters() {
  try {
    const answer = await fetch("dead-letters.json");
    if (answer.ok) letters = await answer.json();
    if (answer.ok && !letters) return; // there is no desk
  } catch { /* the status says that nothing is heard */ }
  deadLetters();
  setTimeout(askLetters, 5000);
}

// ---- The stream, and what to do without one

function status() {
  const e = $("status"), silent = performance.now() - heard;
  const late = state && silent > 3 * state.interval_ms + 4000;
  document.body.classList.toggle("stale", Boolean(late) && !paused);
  if (paused) {
    e.dataset.state = "paused";
    text(e, `paused, as of ${clock(state.at)}`);
  } else if (!state) {
    e.dataset.state = "connecting";
    text(e, trouble || "connecting");
  } else if (late) {
    e.dataset.state = "stale";
    text(e, `nothing heard for ${millis(1000 * Math.round(silent / 1000))}: this is as of ${clock(state.at)}`);
  } else {
    e.dataset.state = trouble ? "polling" : "live";
    text(e, trouble ? `${clock(state.at)} · ${trouble}` : `live · ${clock(state.at)}`);
  }
}

let stream = null;

function open() {
  let whole = true;
  stream?.close();
  const mine = (stream = new EventSource("events"));
  mine.addEventListener("open", () => { whole = true; });
  mine.addEventListener("state", (event) => {
    trouble = "";
    take(JSON.parse(event.data), whole);
    whole = false;
  });
  mine.addEventListener("error", () => {
    if (mine.readyState !== EventSource.CLOSED || mine !== stream) return; // it tries again by itself
    trouble = "no stream, asking every 5 s";
    ask();
    setTimeout(() => { if (mine === stream) open(); }, 5000);
  });
}

/** ask gets the state once, where there is no stream. */
async function ask() {
  try {
    const answer = await fetch("state.json");
    if (answer.ok && trouble) take(await answer.json(), true);
  } catch { /* the status says that nothing is heard */ }
}

// A connection can be dead without anybody noticing.
setInterval(() => {
  status();
  if (state && !trouble && performance.now() - heard > 5 * state.interval_ms + 10000) {
    heard = performance.now() - (3 * state.interval_ms + 4001); // still stale, and one more while to wait
    open();
  }
}, 1000);

$("pause").addEventListener("click", () => {
  if (!state) return;
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  text($("pause"), paused ? "Resume" : "Pause");
  if (paused) status(); else { show(); deadLetters(); }
});

open();
askLetters();
