"use strict";
// Draws the page from the digests in #data (src/tools/report/digest.cpp). Texts of a report come into it as text nodes only.
const digests = JSON.parse(document.getElementById("data").textContent);
const several = digests.length > 1;

// Elements: el("td.n", {title: "..."}, child, ...).
function make(create, what, attributes, children) {
  const [tag, ...classes] = what.split(".");
  const e = create(tag);
  if (classes.length) e.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes || {})) e.setAttribute(key, value);
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined && child !== false) e.append(child);
  return e;
}
const isAttributes = (x) => x && typeof x === "object" && !Array.isArray(x) && !(x instanceof Node);
function el(what, ...rest) {
  const attributes = isAttributes(rest[0]) ? rest.shift() : null;
  return make((tag) => document.createElement(tag), what, attributes, rest);
}
function svg(what, ...rest) {
  const attributes = isAttributes(rest[0]) ? rest.shift() : null;
  return make((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag), what, attributes, rest);
}
const titled = (shape, text) => (shape.append(svg("title", text)), shape);

// Numbers for people.
const digits = (x) => (x === 0 ? "0" : Math.abs(x) < 0.1 ? x.toPrecision(2) : Math.abs(x) < 10 ? x.toFixed(2) : Math.abs(x) < 100 ? x.toFixed(1) : x.toFixed(0));
const whole = (x) => Math.round(x).toLocaleString("en");
function bytes(b) {
  const a = Math.abs(b);
  if (a >= 1e12) return digits(b / 1e12) + " TB";
  if (a >= 1e9) return digits(b / 1e9) + " GB";
  if (a >= 1e6) return digits(b / 1e6) + " MB";
  return a >= 1e3 ? digits(b / 1e3) + " kB" : whole(b) + " B";
}
function time(s) {
  const a = Math.abs(s);
  if (a >= 7200) return digits(s / 3600) + " h";
  if (a >= 120) return digits(s / 60) + " min";
  if (a >= 1 || a === 0) return digits(s) + " s";
  return a >= 1e-3 ? digits(s * 1e3) + " ms" : digits(s * 1e6) + " \u00b5s";
}
function size(b) {
  for (const [unit, name] of [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"]]) if (b >= unit) return digits(b / unit) + " " + name;
  return b + " B";
}
const percent = (x) => (x > 0 && x < 0.01 ? "<1 %" : (100 * x).toFixed(0) + " %");
const times = (x) => (x > 0 ? digits(x) + "\u00d7" : "\u2013");  // 0: nothing but headers was sent
const short = (file) => file.split("/").pop();
const ranksOf = (row) => (row.from === row.to ? "rank " + row.from : "ranks " + row.from + "\u2013" + row.to);

function table(columns, rows) {
  const cell = (tag, column, content) => el(tag + (column.n ? ".n" : column.name ? ".name" : ""), content);
  return el("div.scroll", el("table",
    el("thead", el("tr", columns.map((c) => cell("th", c, c.title)))),
    el("tbody", rows.map((row) => el("tr", row.map((content, i) => cell("td", columns[i], content)))))));
}
const key = (items) => el("div.key", items.map(([name, label]) =>
  el("span", svg("svg.swatch", {viewBox: "0 0 11 11"}, svg("rect." + name, {width: 11, height: 11, rx: 2})), label)));
const picture = (width, height, ...shapes) => svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", style: `max-width: ${1.15 * width}px`}, shapes);
const rect = (name, x, y, width, height, title) => {
  const shape = svg("rect." + name, {x: x.toFixed(2), y: y.toFixed(2), width: Math.max(width, 0).toFixed(2), height: Math.max(height, 0).toFixed(2)});
  return title ? titled(shape, title) : shape;
};
const label = (x, y, content, attributes) => svg("text", {x, y, ...attributes}, content);
const pathOf = (points) => points.map(([x, y], i) => (i ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1)).join("");

// Ticks at 1, 2 or 5 times a power of ten.
function ticks(most, about) {
  if (!(most > 0)) return [0];
  const raw = most / about, power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const out = [];
  for (let i = 0; i * step <= most * 1.0001; ++i) out.push(i * step);
  return out;
}
function timeAxis(left, width, y, most) {
  return ticks(most, 8).map((at) => {
    const x = left + (width * at) / most;
    return [svg("line.axis", {x1: x, x2: x, y1: y, y2: y + 4}), label(x, y + 16, time(at), {"text-anchor": at === 0 ? "start" : x > left + width - 20 ? "end" : "middle"})];
  });
}

// A section with a column for each report that has something to show; `draw` returns nothing where it has not.
function section(id, title, note, draw) {
  const columns = digests.map((d) => {
    const missing = d.missing.find((m) => m.section === (id === "over_time" ? "heat" : id));
    const content = draw(d) || el("p.note", missing ? missing.why + " " + missing.how : "Nothing to show.");
    return el("div", several && el("div.column-name", short(d.file)), content);
  });
  return el("section", {id}, el("h2", title), note && el("p.note", note), el("div.cols", columns));
}

function headline(d) {
  const t = d.saved.time, b = d.saved.bytes;
  const card = (big, small, name) => el("div.card", el("b" + (name ? "." + name : ""), big), el("span", small));
  const out = [card(b.ratio > 0 ? times(b.ratio) + " fewer bytes" : "\u2013", b.ratio > 0 ? `${bytes(b.in)} of gradients, ${bytes(b.sent)} sent by all ranks` : d.calls.compressed.calls > 0 ? "nothing to send" : "no call was compressed")];
  if (t.known) {
    const of = t[t.known], saved = of.saved_s;
    out.push(card((saved >= 0 ? time(saved) + " saved" : time(-saved) + " lost"),
      `per rank: ${time(of.own_s)} in calls, without Crimp ${time(of.plain_s)} (${t.known === "measured" ? "measured" : "predicted, roughly"})`, saved >= 0 ? "good" : "bad"));
  } else out.push(card("\u2013", "what calls would have taken without Crimp is not known"));
  // A mean with what was measured at the beginning may be longer than a median.
  const whole_s = d.step && d.step.step_s >= d.step.total_s ? d.step.step_s : 0;
  if (d.step) out.push(card(time(whole_s || d.step.total_s), whole_s ? `a step, ${time(d.step.total_s)} of it in compressed calls; ${whole(d.step.steps)} steps` : `of a step in compressed calls; ${whole(d.step.steps)} steps`));
  out.push(card(whole(d.calls.compressed.calls), `calls compressed, ${whole(d.calls.passed)} passed to MPI` + (d.calls.errors ? `, ${whole(d.calls.errors)} failed` : "")));
  return el("div.cards", out);
}

function job(d) {
  const j = d.job, facts = [];
  const fact = (name, value) => value !== null && value !== "" && facts.push(el("div", el("dt", name), el("dd", String(value))));
  fact("started", j.started);
  fact("took", j.elapsed_s === null ? null : time(j.elapsed_s));
  fact("ranks", j.ranks);
  fact("nodes", j.nodes);
  const more = j.hosts.length - 8 + j.hosts_left_out;
  fact("hosts", j.hosts.slice(0, 8).map((h) => `${h.name} (${h.ranks})`).join(", ") + (more > 0 ? ` and ${more} more` : ""));
  fact("codecs", d.codecs.map((c) => c.name.split(":")[0]).filter((n, i, all) => all.indexOf(n) === i).join(", "));
  fact("status", j.status);
  fact("Crimp", `${j.crimp} (${j.simd})`);
  const changed = d.settings.changed.filter((s) => s.name !== "CRIMP_REPORT").map((s) => el("code", `${s.name}=${s.value.length > 60 ? s.value.slice(0, 57) + "..." : s.value}`));
  return [el("p.program", el("code", j.program || "program not recorded")), el("dl.facts", facts), changed.length > 0 && el("p.changed", changed)];
}

const advice = (d) => el("ol.advice", d.advice.map((a) => el("li." + a.level,
  el("span.level", a.share > 0 ? percent(a.share) + " of the time in calls" : a.level), el("b", a.text), el("div.figure", a.figure), el("div", a.try))));

function saved(d) {
  const t = d.saved.time;
  if (!(t.calls > 0)) return null;
  const rows = [];
  const add = (title, of, name, other) => {
    if (!(of.calls > 0)) return;
    const most = Math.max(of.own_s, of[name]);
    const bar = (y, s, style, text) => [rect(style, 150, y, (430 * s) / most, 14), label(144, y + 11, text, {"text-anchor": "end"}), label(156 + (430 * s) / most, y + 11, time(s), {class: "strong"})];
    const change = of.saved_s >= 0 ? `${time(of.saved_s)} (${percent(of[name] > 0 ? of.saved_s / of[name] : 0)}) less` : `${time(-of.saved_s)} more`;
    rows.push(el("h3", `${title}: ${whole(of.calls)} calls, with Crimp ${change}`), Math.abs(of.took_s - of.own_s) > 0.05 * of.took_s && el("p.note", `They took ${time(of.took_s)} with waiting for late ranks and whatever else kept them; plain MPI would have waited, too.`), picture(660, 40, bar(2, of.own_s, "wire", "with Crimp"), bar(21, of[name], "other", other)));
  };
  add("Plain MPI, measured in this job", t.measured, "plain_s", "without Crimp");
  add("Plain MPI, predicted roughly, from short messages", t.predicted, "plain_s", "without Crimp");
  add("The fastest of all that was measured", t.best, "best_s", "fastest");
  if (t.unknown_calls >= 0.5) rows.push(el("p.note", `Of ${whole(t.unknown_calls)} calls it is not known what plain MPI would have taken.`));
  return rows;
}

const kParts = [["encode_s", "encode", "encode"], ["wire_s", "wire", "wire"], ["decode_s", "decode", "decode"], ["other_s", "other", "other"], ["wait_s", "wait", "before it, waiting for a late rank"]];
// Waiting is ahead of the calls: beside their time, not in it.
function parts(s) {
  return kParts.map(([name, style, text]) => [s[name] || 0, style, text]).filter(([, style]) => style !== "wait" || s.wait_s !== null);
}
function step(d) {
  const s = d.step || d.calls.compressed;
  if (!(s.total_s > 0)) return null;
  const all = parts(s), sum = all.reduce((a, [x]) => a + x, 0);
  let x = 0;
  const bars = all.map(([v, style, text]) => { const w = (660 * v) / sum, shape = rect(style, x, 0, w, 30, `${text}: ${time(v)}`); x += w; return shape; });
  return [d.step ? el("p", `${whole(s.steps)} steps; a step has ${digits(s.calls)} compressed calls, which take ${time(s.total_s)}` + (s.passed_calls === null ? "." : `, and ${digits(s.passed_calls)} that pass.`) + (s.step_s ? ` Measured from step to step: ${time(s.step_s)}.` : ""))
    : el("p", `How many steps there were is not known; of the whole job, per rank:`),
    picture(660, 30, bars), key(all.map(([, style, text]) => [style, text])),
    table([{title: ""}, {title: d.step ? "per step" : "per rank", n: 1}, {title: "share", n: 1}], all.map(([v, , text]) => [text, time(v), percent(v / sum)])),
    s.wait_s === null && el("p.note", "Waiting for a late rank is not separated from the wire in this report: CRIMP_SKEW=1 does that."),
    sum > (s.total_s + (s.wait_s || 0)) * 1.02 && el("p.note", `Parts overlap: together ${time(sum)} in calls of ${time(s.total_s)}.`)];
}

function overTime(d) {
  if (!d.heat) return null;
  const o = d.heat.over_time, n = d.heat.bins, w = d.heat.width_s, left = 44, width = 1000 - left, high = 150;
  const rows = [], column = width / n;
  for (let b = 0; b < n; ++b) {
    const s = {encode_s: o.encode_s[b], wire_s: o.wire_s[b], decode_s: o.decode_s[b], wait_s: d.heat.waits ? o.wait_s[b] : null};
    s.other_s = Math.max(0, o.in_calls_s[b] - s.encode_s - s.wire_s - s.decode_s);
    const all = parts(s), sum = all.reduce((a, [x]) => a + x, 0), scale = (high / w) * Math.min(1, sum > w ? w / sum : 1);
    let y = high;
    for (const [v, style, text] of all) if (v > 0) { y -= v * scale; rows.push(rect(style, left + b * column, y, column + 0.05, v * scale, `${time(b * w)}: ${text} ${percent(v / w)} of the time, ${bytes(o.sent_bytes[b])} sent`)); }
  }
  const axis = [0, 0.5, 1].map((f) => [svg("line.axis", {x1: left, x2: 1000, y1: high * (1 - f), y2: high * (1 - f)}), label(left - 6, high * (1 - f) + (f === 1 ? 9 : 4), percent(f), {"text-anchor": "end"})]);
  return [key(parts({wait_s: d.heat.waits ? 0 : null, wire_s: 0}).map(([, style, text]) => [style, style === "other" ? "other, and calls that passed to MPI" : text])), picture(1000, high + 22, axis, rows, timeAxis(left, width, high, n * w))];
}

function heat(d) {
  if (!d.heat) return null;
  const h = d.heat, kinds = [["in_calls", "in calls"], ["wire", "wire"], ["codec", "encode and decode"], ["sent", "bytes sent"]];
  if (h.waits) kinds.push(["wait", "waiting"]);
  const left = 104, gap = h.rows.length > 24 ? 0 : 1, width = 1000 - left, rowHigh = Math.max(7, Math.min(22, 260 / h.rows.length)), high = rowHigh * h.rows.length, column = width / h.bins;
  const place = el("div"), buttons = el("div.buttons", {role: "group", "aria-label": "what is shown"});
  const draw = (kind) => {
    let most = 1;
    for (const row of h.rows) for (const v of row[kind]) if (v > most) most = v;
    const shapes = [];
    h.rows.forEach((row, r) => {
      const y = r * rowHigh, values = row[kind], levels = values.map((v) => (v <= 0 ? -1 : Math.min(7, Math.floor((8 * v) / most))));
      if (h.rows.length <= 16 || r % Math.ceil(h.rows.length / 16) === 0) shapes.push(label(left - 6, Math.max(9, y + rowHigh / 2 + 4), ranksOf(row), {"text-anchor": "end"}));
      for (let b = 0; b < levels.length;) {  // neighbours of one level are one shape
        let end = b, sum = 0;
        while (end < levels.length && levels[end] === levels[b]) sum += values[end++];
        const mean = sum / (end - b), text = kind === "sent" ? bytes(mean) + " a bin" : percent(mean / 1000) + " of the time";
        if (levels[b] >= 0) shapes.push(rect("h" + levels[b], left + b * column, y + gap / 2, (end - b) * column, rowHigh - gap, `${ranksOf(row)}, ${time(b * h.width_s)} to ${time(end * h.width_s)}: ${text}`));
        b = end;
      }
    });
    const scale = kind === "sent" ? `darkest: ${bytes(most)} in ${time(h.width_s)}` : `darkest: ${percent(most / 1000)} of the time`;
    place.replaceChildren(picture(1000, high + 22, shapes, timeAxis(left, width, high, h.bins * h.width_s)), el("p.note", `${scale}; a bin is ${time(h.width_s)}.` + (h.ranks_a_row > 1 ? ` A row is the mean of ${h.ranks_a_row} ranks.` : "")));
    for (const b of buttons.children) b.setAttribute("aria-pressed", String(b.dataset.kind === kind));
  };
  for (const [kind, text] of kinds) {
    const button = el("button", {type: "button", "data-kind": kind}, text);
    button.addEventListener("click", () => draw(kind));
    buttons.append(button);
  }
  draw("in_calls");
  return [buttons, place];
}

function ranks(d) {
  const rows = d.ranks.rows, most = Math.max(...rows.map((r) => r.total_s + (r.wait_s || 0)), 1e-12), rowHigh = rows.length > 24 ? 12 : 20;
  const shapes = rows.map((row, i) => {
    let x = 104;
    const all = parts({...row, other_s: Math.max(0, row.total_s - row.encode_s - row.wire_s - row.decode_s)}), sum = Math.max(all.reduce((a, [v]) => a + v, 0), 1e-12), length = row.total_s + (row.wait_s || 0);
    return [(rows.length <= 32 || i % 4 === 0) && label(98, i * rowHigh + rowHigh / 2 + 4, ranksOf(row), {"text-anchor": "end"}),
      all.map(([v, style, text]) => { const w = (480 * (v / sum) * length) / most, shape = rect(style, x, i * rowHigh + 1, w, rowHigh - 2, `${ranksOf(row)}: ${text} ${time(v)}`); x += w; return shape; }),
      label(110 + (480 * length) / most, i * rowHigh + rowHigh / 2 + 4, rowHigh > 12 ? time(length) : "")];
  });
  return [picture(660, rows.length * rowHigh, shapes), key(parts({wait_s: d.calls.compressed.wait_s === null ? null : 0, wire_s: 0}).map(([, style, text]) => [style, text])), d.ranks.ranks_a_row > 1 && el("p.note", `A row is the mean of ${d.ranks.ranks_a_row} ranks.`)];
}

function sizes(d) {
  if (!d.sizes) return null;
  const of = d.sizes, all = {calls: 0, bytes_in: 0, total_s: 0};
  for (const s of of) for (const k in all) all[k] += s[k];
  const kinds = [["calls", "encode", "calls"], ["bytes_in", "decode", "bytes"], ["total_s", "wire", "time"]], left = 40, width = 660 - left, high = 130, group = width / of.length, bar = Math.min(26, (group - 10) / 3);
  const shapes = [0, 0.5, 1].map((f) => [svg("line.axis", {x1: left, x2: 660, y1: 8 + high * (1 - f), y2: 8 + high * (1 - f)}), label(left - 6, 12 + high * (1 - f), percent(f), {"text-anchor": "end"})]);
  of.forEach((s, i) => {
    const x = left + group * i + (group - 3 * bar) / 2;
    kinds.forEach(([k, style, text], j) => { const share = all[k] > 0 ? s[k] / all[k] : 0; shapes.push(rect(style, x + j * bar, 8 + high * (1 - share), bar - 1, high * share, `${text}: ${percent(share)}`)); });
    shapes.push(label(left + group * (i + 0.5), high + 24, size(s.from_bytes), {"text-anchor": "middle"}));
  });
  return [key(kinds.map(([, style, text]) => [style, "share of " + text])), picture(660, high + 30, shapes),
    table([{title: "from"}, {title: "calls", n: 1}, {title: "bytes", n: 1}, {title: "ratio", n: 1}, {title: "a call takes", n: 1}, {title: "time", n: 1}],
      of.map((s) => [size(s.from_bytes), whole(s.calls), bytes(s.bytes_in), times(s.ratio), time(s.calls > 0 ? s.total_s / s.calls : 0), percent(all.total_s > 0 ? s.total_s / all.total_s : 0)]))];
}

function codecs(d) {
  if (!d.codecs.length) return null;
  const columns = [{title: "", name: 1}, {title: "calls", n: 1}, {title: "in", n: 1}, {title: "ratio", n: 1}, {title: "encode", n: 1}, {title: "wire", n: 1}, {title: "decode", n: 1}, {title: "total", n: 1}];
  const row = (c, extra) => [el("span", el("code", c.name), extra && el("div.note", extra)), whole(c.calls), bytes(c.bytes_in), times(c.ratio), time(c.encode_s), time(c.wire_s), time(c.decode_s), time(c.total_s)];
  const why = (c) => c.why && Object.entries(c.why).map(([reason, n]) => `${reason} ${whole(n)}`).join(", ");
  return [el("h3", "Codecs"), table(columns, d.codecs.map((c) => row(c))), el("h3", "Algorithms, and why each was taken"), table(columns, d.algorithms.map((c) => row(c, why(c)))), el("h3", "How the tensors of calls are known"), table(columns, d.layouts.map((c) => row(c)))];
}

const relative = (s) => (s[3] > 0 ? s[2] / s[3] : 0);
function tensors(d) {
  const t = d.tensors;
  if (!t) return null;
  const withMemory = t.listed.filter((x) => x.residual.length > 1 && x.residual.some((s) => relative(s) > 0)).slice(0, 6);
  const chart = [];
  if (withMemory.length) {
    const left = 46, width = 1000 - left, high = 150, points = withMemory.map((x) => x.residual.filter((s) => relative(s) > 0).map((s) => [s[1], relative(s), s[0]]));
    const flat = points.flat(), most = Math.max(...flat.map((p) => p[0]), 1e-9);
    const low = Math.floor(Math.log10(Math.min(...flat.map((p) => p[1])))), top = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...flat.map((p) => p[1])))));
    const y = (v) => 6 + high * (1 - (Math.log10(v) - low) / (top - low)), shapes = [], by = Math.max(1, Math.ceil((top - low) / 6));
    for (let e = low; e <= top; e += by) shapes.push(svg("line.axis", {x1: left, x2: 1000, y1: y(10 ** e), y2: y(10 ** e)}), label(left - 6, y(10 ** e) + 4, e >= -2 && e <= 3 ? String(10 ** e) : "1e" + e, {"text-anchor": "end"}));
    points.forEach((line, i) => {
      const at = line.map(([s, v]) => [left + (width * s) / most, y(v)]);
      shapes.push(svg("path.line.s" + i, {d: pathOf(at)}), line.map((p, k) => titled(svg("circle.s" + i, {cx: at[k][0].toFixed(1), cy: at[k][1].toFixed(1), r: 2.5, fill: "none"}), `${withMemory[i].name}, call ${p[2]} at ${time(p[0])}: ${digits(p[1])}`)));
    });
    chart.push(el("h3", "What the codec has left, as a part of the norm of the call's gradients, over the job's time (largest tensors)"), picture(1000, high + 28, shapes, timeAxis(left, width, high + 6, most)),
      el("div.key", withMemory.map((x, i) => el("span", svg("svg.swatch", {viewBox: "0 0 11 11"}, svg("path.line.s" + i, {d: "M0 6H11"})), x.name))));
  }
  const spark = (x) => {
    const v = x.residual.map((s) => s[2]), most = Math.max(...v);
    if (v.length < 2 || !(most > 0)) return "";
    return titled(svg("svg.spark", {viewBox: "0 0 120 22"}, svg("path", {d: pathOf(v.map((n, i) => [2 + (116 * i) / (v.length - 1), 20 - (18 * n) / most]))})), `norms ${v.map(digits).join(", ")} at calls ${x.residual.map((s) => s[0]).join(", ")}`);
  };
  const columns = [{title: "tensor", name: 1}, {title: "codec", name: 1}, {title: "elements", n: 1}, {title: "calls", n: 1}, {title: "in", n: 1}, {title: "ratio", n: 1}, {title: "residual's norm, last", n: 1}, {title: "over calls 1, 2, 4, ..."}];
  const row = (x) => {
    const last = x.residual[x.residual.length - 1];
    return [el("code", x.name), Object.entries(x.codecs).map(([spec, n]) => el("div", el("code", spec), Object.keys(x.codecs).length > 1 && ` (${whole(n)})`)), whole(x.elements), whole(x.calls), bytes(x.bytes_in), times(x.ratio), last ? `${digits(last[2])} of ${digits(last[3])}` : "\u2013", spark(x)];
  };
  const out = [chart, table(columns, t.listed.slice(0, 12).map(row))];
  if (t.listed.length > 12) out.push(el("details", el("summary", `${t.listed.length - 12} more tensors`), table(columns, t.listed.slice(12).map(row))));
  if (t.left_out || t.unlisted_calls) out.push(el("p.note", `Left out: ${whole(t.left_out)} smaller tensors` + (t.unlisted_calls ? `, and tensors beyond those that a rank lists, in ${whole(t.unlisted_calls)} calls.` : ".")));
  return out;
}

function plans(d) {
  if (!d.plans) return null;
  return d.plans.map((p) => {
    const most = Math.max(p.step_s, p.end_s, 1e-12), left = 8, width = 984, shapes = [], x = (s) => left + (width * s) / most;
    p.calls.forEach((c, i) => {
      shapes.push(svg("line.ready", {x1: x(c.ready_s), x2: x(c.ready_s), y1: 4, y2: 16}), rect(i % 2 ? "encode" : "call", x(c.begin_s), 20, Math.max(x(c.end_s) - x(c.begin_s) - 0.6, 0.6), 26, `call ${i + 1}: ${whole(c.tensors)} tensors, ${bytes(c.bytes)}; ready at ${time(c.ready_s)}, from ${time(c.begin_s)} to ${time(c.end_s)}`));
    });
    if (p.step_s > 0) shapes.push(svg("line.ready", {x1: x(p.step_s), x2: x(p.step_s), y1: 16, y2: 50, "stroke-dasharray": "3 3"}));
    return [el("h3", `${p.caller === "horovod" ? "Horovod, rank " + p.rank : "The program"}: ${whole(p.tensors)} tensors, ${bytes(p.bytes)}, in ${whole(p.calls.length + p.calls_left_out)} calls (${p.plan}); median of ${whole(p.steps)} steps`),
      picture(1000, 70, shapes, timeAxis(left, width, 50, most)),
      el("p.note", "Marks above: when a group's last tensor is ready. Boxes: its call, by the measured times of calls." + (p.step_s > 0 ? ` Dashed: the step ends, ${time(p.step_s)}.` : "") + (p.calls_left_out ? ` ${p.calls_left_out} further calls are not drawn.` : "")),
      table([{title: "merge plan"}, {title: "calls", n: 1}, {title: "exchange ends", n: 1}, {title: "setting", name: 1}], [...p.plans.map((q) => [q.name, whole(q.groups), time(q.end_s), q.setting.length > 300 ? "see crimp plan" : q.setting && el("code", q.setting)])])];
  });
}

function control(d) {
  if (!d.control) return null;
  return d.control.map((c) => {
    const calls = Math.max(...c.classes.map((k) => k.calls), ...c.decisions.map((k) => k.call), 1), left = 30, width = 960, top = Math.max(c.ladder.length - 1, 1), high = 22 * top, y = (level) => 10 + high * (1 - level / top), shapes = [];
    c.ladder.forEach((codec, level) => shapes.push(svg("line.axis", {x1: left, x2: left + width, y1: y(level), y2: y(level)}), titled(label(left - 8, y(level) + 4, String(level), {"text-anchor": "end"}), codec)));
    c.classes.slice(0, 6).forEach((k, i) => {
      const own = c.decisions.filter((q) => q.from_bytes === k.from_bytes), points = [];
      let level = own.length ? own[0].from : k.level;
      points.push([left, y(level)]);
      for (const q of own) { const x = left + (width * q.call) / calls; points.push([x, y(q.from)], [x, y(q.to)]); level = q.to; }
      points.push([left + (width * Math.max(k.calls, own.length ? own[own.length - 1].call : 0)) / calls, y(level)]);
      shapes.push(svg("path.line.s" + i, {d: pathOf(points)}));
    });
    const axis = ticks(calls, 8).map((n) => label(left + (width * n) / calls, high + 28, whole(n), {"text-anchor": "middle"}));
    const at = c.decisions.map((q) => [whole(q.call), size(q.from_bytes), `${q.from} \u2192 ${q.to}`, el("code", c.ladder[q.to] || ""), q.why, time(q.wait_us * 1e-6), time(q.target_us * 1e-6)]);
    const columns = [{title: "call", n: 1}, {title: "calls from"}, {title: "level"}, {title: "codec", name: 1}, {title: "why"}, {title: "waited", n: 1}, {title: "target", n: 1}];
    return [el("p", `${whole(c.changes)} changes. Level over a class's calls:`), picture(1000, high + 34, shapes, axis), el("div.key", c.classes.slice(0, 6).map((k, i) => el("span", svg("svg.swatch", {viewBox: "0 0 11 11"}, svg("path.line.s" + i, {d: "M0 6H11"})), `calls from ${size(k.from_bytes)}: ${k.calls_at_level.map((n, level) => (n > 0 ? `${whole(n)} at level ${level}` : "")).filter(Boolean).join(", ")}`))),
      el("p.note", "Levels: ", c.ladder.map((codec, i) => [i ? "; " : "", `${i} `, el("code", codec)])),
      at.length > 0 && table(columns, at.slice(0, 10)), at.length > 10 && el("details", el("summary", `${at.length - 10} more changes`), table(columns, at.slice(10)))];
  });
}

function passed(d) {
  const out = [], x = d.excluded;
  if (d.passed.length) out.push(table([{title: "why a call passed to MPI, unchanged"}, {title: "calls", n: 1}, {title: "of all calls", n: 1}], d.passed.map((p) => [p.text, whole(p.calls), percent(p.share)])));
  else out.push(el("p", "No call passed."));
  if (x.tensors.length) out.push(el("details", el("summary", `${x.tensors.length + x.left_out} tensors that CRIMP_RULES has summed exactly`), table([{title: "tensor", name: 1}, {title: "elements", n: 1}, {title: "calls", n: 1}], x.tensors.map((t) => [el("code", t.name), whole(t.elements), whole(t.calls)])), x.left_out > 0 && el("p.note", `${x.left_out} more are not listed.`)));
  return out;
}

function settings(d) {
  const row = (s) => [el("code.whole", s.name), el("code", s.value === "" ? "unset" : s.value), s.default === null ? "not known here" : el("code", s.default === "" ? "unset" : s.default)];
  const columns = [{title: "setting"}, {title: "value", name: 1}, {title: "default", name: 1}];
  return [d.settings.changed.length ? table(columns, d.settings.changed.map(row)) : el("p", "All as they are by default."), d.settings.others.length > 0 && el("details", el("summary", `${d.settings.others.length} as they are by default`), table(columns, d.settings.others.map(row)))];
}

// What differs between reports, in one table.
function comparison() {
  const rows = [], add = (name, text, value, better) => {
    const values = digests.map(value);
    if (values.every((v) => v === null)) return;
    rows.push([name, ...values.map((v, i) => {
      const change = i > 0 && v !== null && values[0] > 0 ? v / values[0] - 1 : null;
      const style = change === null || Math.abs(change) < 0.01 || !better ? "" : change * better > 0 ? ".good" : ".bad";
      return el("span", v === null ? "\u2013" : text(v), change !== null && Math.abs(change) >= 0.005 && el("span" + style, ` (${change > 0 ? "+" : "\u2212"}${change > 9.99 ? times(change + 1) : (100 * Math.abs(change)).toFixed(0) + " %"})`));
    })]);
  };
  const known = (d) => (d.saved.time.known === "measured" ? d.saved.time.measured : null);
  add("ranks", whole, (d) => d.job.ranks);
  add("job", time, (d) => d.job.elapsed_s, 0);
  add("a step", time, (d) => (d.step ? d.step.step_s : null), -1);
  add("in compressed calls, per rank", time, (d) => d.calls.compressed.total_s, 0);
  add("in compressed calls, a step", time, (d) => (d.step ? d.step.total_s : null), -1);
  for (const [name, , text] of kParts.filter((p) => p[0] !== "other_s")) add(`${text}, a step`, time, (d) => (d.step ? d.step[name] : null), -1);
  add("all calls that are timed, per rank", time, (d) => (d.saved.time.calls > 0 ? d.saved.time.took_s : null), 0);
  add("plain MPI would have taken (measured)", time, (d) => known(d) && known(d).plain_s, 0);
  add("bytes sent, all ranks", bytes, (d) => d.saved.bytes.sent, 0);
  add("ratio", times, (d) => d.saved.bytes.ratio, 1);
  add("calls compressed", whole, (d) => d.calls.compressed.calls, 0);
  add("calls passed", whole, (d) => d.calls.passed, 0);
  const value = (d, name) => { const s = [...d.settings.changed, ...d.settings.others].find((x) => x.name === name); return s ? s.value : null; };
  const names = digests.flatMap((d) => d.settings.changed.map((s) => s.name)).filter((n, i, all) => all.indexOf(n) === i && n !== "CRIMP_REPORT");
  const differ = names.filter((n) => digests.some((d) => value(d, n) !== value(digests[0], n)));
  const columns = (first) => [{title: first}, ...digests.map((d) => ({title: short(d.file), name: 1}))];
  return el("section", {id: "comparison"}, el("h2", "Side by side"), el("p.note", "Changes are against the first report."), table(columns(""), rows), differ.length > 0 && [el("h3", "Settings that differ"), table(columns("setting"), differ.map((n) => [el("code", n), ...digests.map((d) => el("code", value(d, n) === null ? "\u2013" : value(d, n) === "" ? "unset" : value(d, n)))]))]);
}

const page = document.getElementById("page");
page.style.setProperty("--columns", Math.min(digests.length, 4));
if (several) page.classList.add("several");
page.append(el("header", el("h1", several ? "Crimp: " + digests.length + " reports" : "Crimp report")),
  section("job", several ? "Jobs" : "Job", null, job),
  several ? comparison() : "",
  section("headline", "What it came to", null, headline),
  section("advice", "What to try next", "By the share of the time in calls that each is about; each with the figure behind it.", advice),
  section("time", "Time saved, and what it would have taken without", "Seconds of a rank, the mean of all. Calls include those in which something was measured or tried.", saved),
  section("step", "A step's time in compressed calls", "The mean of all ranks. Other: looking at values, what is summed exactly, measuring; what of encoding and decoding is hidden behind the wire counts in both.", step),
  section("over_time", "Over the job's time", "Part of each bin's time that a rank spends in calls, the mean of all ranks.", overTime),
  section("heat", "Ranks over time", "Rows are ranks, columns bins of the job's time, with one origin for all.", heat),
  section("ranks", "Ranks", "Time in compressed calls of each. A rank that the others wait for has the shortest wire, or the shortest wait.", ranks),
  section("sizes", "Sizes of compressed calls", null, sizes),
  section("codecs", "Codecs and algorithms", "Per rank.", codecs),
  section("tensors", "Tensors", "Of each communicator's first rank. Bytes of calls with several tensors are shared out by elements.", tensors),
  section("plans", "The step and its merge plan", null, plans),
  section("control", "Control levels", null, control),
  section("passed", "What passed through, and why", null, passed),
  section("settings", "Settings", "Those that differ from their defaults in front.", settings),
  section("missing", "What is not in this report", null, (d) => d.missing.length === 0 ? el("p", "Everything that this page can show was there.") : el("ul", d.missing.map((m) => el("li", m.why + " " + m.how)))),
  el("footer", "Made by crimp report from ", digests.map((d, i) => [i ? ", " : "", el("code", d.file)]), ". How to read it: docs/report.md."));
// Paper has no button to press.
addEventListener("beforeprint", () => { for (const d of document.querySelectorAll("section:not(#settings) details")) if (d.querySelectorAll("tr").length < 60) d.open = true; });
