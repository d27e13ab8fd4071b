// The page: keeps the past that the stream sends piece by piece, and shows it. Whatever a name holds stays text.

import { Bar, Chart, clock, el, millis, number, percent, text } from "./draw.js";

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
  }
}

/** usual is the usual time between points, in milliseconds. */
function usual(list, otherwise) {
  const gaps = list.slice(1).map((p, i) => p.t - list[i].t).sort((a, b) => a - b);
  return gaps.length > 2 ? Math.max(1, gaps[gaps.length >> 1]) : otherwise;
}

// ---- Lists that keep their elements, so that what is open stays open and what is selected stays selected

/** keyed makes the children of list those of items, in order. make builds one, update changes it. Of items with the same key, each has its own. */
function keyed(list, items, key, make, update, stays = () => false) {
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

// ---- Showing

function show() {
  const s = state;
  text($("title"), s.title);
  text($("instance"), s.instance);
  const said = s.verdicts[0]?.level ?? "ok", left = letters && (letters.trouble || letters.waiting > letters.parked);
  const worst = said === "ok" && left ? "watch" : said;
  document.title = `${{ ok: "ok", watch: "watch", act: "act" }[worst] ?? worst} · ${s.title}${s.instance && ` · ${s.instance}`}`;
  text($("about"), `JSON schema version ${s.version}.`);
  verdicts(s.verdicts);
  warden(s);
  compartments(s);
  limiters(s);
  rejections(s.rejections);
  decisions(s);
  status();
}

function verdicts(list) {
  keyed($("verdicts"), list, (v) => v.subject, () => el("li", {}, el("b", { class: "level" }), el("span", { class: "subject" }), el("span", { class: "say" })),
    (e, v) => {
      e.dataset.level = v.level;
      text(e.children[0], v.level);
      text(e.children[1], v.subject);
      text(e.children[2], v.text);
    });
}

const charts = {
  tasks: new Chart({ title: "Tasks", series: [
    { label: "in flight", line: "s-blue", area: true, of: (p) => p.in_flight },
    { label: "queued", line: "s-orange", of: (p) => p.queued },
    { label: "limit", line: "s-ink dashed", step: true, of: (p) => p.target }] }),
  outcome: new Chart({ title: "Outcome per second", series: [
    { label: "done", line: "s-green", area: true, of: (p) => p.done },
    { label: "rejected", line: "s-red", area: true, of: (p) => p.rejects }] }),
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

function warden(s) {
  $("warden").hidden = $("decided").hidden = !s.warden;
  if (!s.warden) return;
  const w = s.warden, last = points.at(-1) ?? {};
  const tiles = [
    ["In flight", number(w.in_flight), `concurrency limit ${number(w.target)}`],
    ["Queued", number(w.queued), "waiting for a slot"],
    ["Shed", percent(w.decision?.shed ?? 0), "of what would have to queue"],
    ["Pressure", last.pressure === undefined || last.pressure === null ? "–" : last.pressure.toFixed(2), "limit falls above 0.50"],
    ["Rejected", `${number(last.rejects ?? 0)}/s`, `${number(w.rejected)} since the start`],
    ["Done", `${number(last.done ?? 0)}/s`, `${number(w.executed)} since the start`],
    ["Execution p50", millis(last.service_p50_ms), `p90 ${millis(last.service_p90_ms)}`],
    ["Utilization", percent(last.utilization), "of the CPU allowed"],
  ];
  keyed($("tiles"), tiles, (t) => t[0], (t) => el("div", {}, el("dt", {}, t[0]), el("dd", { class: "value" }), el("dd", { class: "hint" })),
    (e, t) => {
      text(e.children[1], t[1]);
      text(e.children[2], t[2]);
    });
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
    el("h3", {}, el("span", { class: "name" }), el("b", { class: "level" })),
    bar.svg, el("p", { class: "caption" }), el("dl", { class: "facts" }), chart.figure,
    el("details", {}, el("summary", {}, "Since the start"), el("dl", { class: "facts" })));
  past.set(e, { bar, chart });
  return e;
}

function facts(dl, pairs) {
  keyed(dl, pairs, (p) => p[0], (p) => el("div", {}, el("dt", {}, p[0]), el("dd")), (e, p) => text(e.children[1], p[1]));
}

function fill(e, { key, name, level, bar, caption, now, since }) {
  const { bar: b, chart } = past.get(e);
  const [head, , note, dl, , details] = e.children;
  text(head.children[0], name);
  text(head.children[1], level ?? "");
  head.children[1].hidden = !level;
  e.dataset.level = level ?? "";
  b.draw(bar);
  text(note, caption);
  facts(dl, now);
  facts(details.children[1], since);
  const list = looks.filter((l) => l.pools[key]).map((l) => ({ t: l.t, ...l.pools[key] }));
  rate(list, list.length);
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
  keyed($("compartments"), s.set.compartments, (c) => c.name, card, (e, c) => {
    const own = Math.min(c.in_flight, c.effective_guaranteed), over = c.in_flight - own;
    fill(e, {
      key: `compartment:${c.name}`, name: c.name,
      level: c.healthy ? (c.rejection_rate > 0 || c.queued > 0 || c.abandoned > 0 || c.mode !== "enforce" ? "watch" : "ok") : "act",
      bar: { own, over, whole: Math.max(c.effective_max, c.in_flight), mark: c.effective_guaranteed < c.effective_max ? c.effective_guaranteed : null,
        label: `${c.in_flight} in flight, ${c.effective_guaranteed} guaranteed, ${c.effective_max} at most` },
      caption: `${number(c.in_flight)} in flight, ${number(c.effective_guaranteed)} guaranteed` +
        (c.effective_guaranteed < c.guaranteed ? ` (planned ${number(c.guaranteed)})` : "") + `, ${number(c.effective_max)} at most` +
        (c.healthy ? "" : `. ${c.unhealthy}`),
      now: [
        ["lent", number(c.lent)], ["borrowed", number(c.borrowed)],
        ["queued", `${number(c.queued)} of ${number(c.max_queue)}`], ["rejected, 1 min", percent(c.rejection_rate)],
        ["p50, 1 min", millis(c.execution_p50_ms)], ["p99, 1 min", millis(c.execution_p99_ms)],
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
  keyed($("limiter-cards"), s.limiters, (l) => l.name, card, (e, l) => {
    const verdict = s.verdicts.find((v) => v.subject === l.name);
    fill(e, {
      key: `limiter:${l.name}`, name: l.name, level: verdict?.level,
      bar: { own: l.in_flight, whole: Math.max(l.target, l.in_flight), label: `${l.in_flight} of ${l.target} in flight` },
      caption: `${number(l.in_flight)} of ${number(l.target)} in flight`,
      now: [["queued", number(l.queued)], [l.recent ? `rejected, ${number(Math.round(l.recent.seconds))} s` : "rejected lately", l.recent ? number(l.recent.rejected) : "–"], ...(l.mode !== "enforce" ? [["mode", l.mode]] : [])],
      since: [["done", number(l.executed)], ["rejected", number(l.rejected)], ...reasons(l.by_reason, ""), ...reasons(l.would_reject, "dry run: ")],
    });
  });
}

const reasons = (counts, before) => Object.entries(counts).sort((a, b) => b[1] - a[1]).map(([reason, n]) => [before + reason, number(n)]);

// ---- Rejections and decisions

function rejections(list) {
  $("no-rejections").hidden = list.length > 0 || $("rejections").childElementCount > 0;
  keyed($("rejections"), list, (r) => r.id, rejection, null, (e) => e.open);
}

function rejection(r) {
  const d = r.decision, ofSet = r.limiter !== state?.warden?.name && state?.set?.compartments.some((c) => c.name === r.limiter);
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
      e.children[0].setAttribute("datetime", l.at);
      text(e.children[0], Date.parse(at) - Date.parse(l.at) < 86400e3 ? clock(l.at) : l.at.slice(0, 10));
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
