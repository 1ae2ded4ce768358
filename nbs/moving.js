/* Moving pictures: a still picture that a chapter's cell drew becomes one that the reader operates.

   A cell ends in moving("kind", data, alt=…) of hot_nbdev.book. Its output is <div class="moving">: a still
   picture, a line of text, and the data as JSON. For each kind there are here, from the data d and a state s,
   the panels, the text below them, and the controls. Panels are drawn as hot_nbdev.book draws them. No library,
   nothing from the network, no motion but what the reader asks for. */
(() => {
"use strict";

const range = n => Array.from({length: n}, (_, i) => i);
const sum = list => list.reduce((a, b) => a + b, 0);
const most = rows => Math.max(...rows.flat().map(Math.abs));
const num = v => String(+v.toFixed(2));
const count = v => v.toLocaleString("en-US");
const clip = (v, low, high) => Math.min(Math.max(v, low), high);
const cut = (row, n) => { const part = row.slice(0, n), all = sum(part); return part.map(v => v / all); };
const text = s => s.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/* ---- panels as SVG ---- */

function svg(p, width, height, body) {
  const w = Math.max(width, Math.ceil(7.2 * p.title.length)) + 6, h = height + 26;
  return `<svg viewBox="-3 -22 ${w} ${h}" width="${w}" height="${h}" fill="currentColor" font-size="14" ` +
    `style="max-width:100%;height:auto"><text y="-7">${text(p.title)}</text>${body}</svg>`;
}

function cells(p) {
  const c = p.cell || 22, m = p.shades.length, n = p.shades[0].length, dim = p.texts ? 0.45 : 1;
  const lines = range(m + 1).map(r => `M0 ${r * c}h${n * c}`).join("") + range(n + 1).map(k => `M${k * c} 0v${m * c}`).join("");
  const group = sign => p.shades.flatMap((row, r) => row.map((v, k) => sign * v > 0 && num(dim * Math.abs(v)) > 0
    ? `<path d="M${k * c} ${r * c}h${c}v${c}h-${c}z" fill-opacity="${num(dim * Math.abs(v))}"/>` : "")).join("");
  const words = (p.texts || []).flatMap((row, r) => row.map((t, k) =>
    `<text x="${(k + 0.5) * c}" y="${r * c + c / 2 + 5}" text-anchor="middle">${text(t)}</text>`)).join("");
  const marks = (p.marks || []).map(([r, k]) => `M${k * c} ${r * c}h${c}v${c}h-${c}z`).join("");
  return svg(p, n * c, m * c, `<g style="fill:var(--moving-more,#3f7fb5)">${group(1)}</g>` +
    `<g style="fill:var(--moving-less,#c07a2c)">${group(-1)}</g>` +
    `<path d="${lines}" fill="none" stroke="currentColor" stroke-opacity=".25"/>${words}` +
    `<path d="${marks}" fill="none" stroke="currentColor" stroke-width="2.5"/>`);
}

function curves(p) {
  const W = 210, H = 110, n = p.lines[0].length;
  const at = (v, i) => [14 + i * (W - 28) / (n - 1), H * (p.high - v) / (p.high - p.low)].map(num);
  const path = line => "M" + line.map((v, i) => at(v, i).join(" ")).join("L");
  const [now, was] = p.lines;
  const dots = now.map((v, i) => { const [x, y] = at(v, i); return `<circle cx="${x}" cy="${y}" r="${i === p.big ? 7 : 4}"/>`; });
  const before = was ? `<path d="${path(was)}" fill="none" stroke="currentColor" stroke-dasharray="3 4"/>` : "";
  return svg(p, W, H + 18, `<path d="M0 ${H}h${W}M0 0v${H}" fill="none" stroke="currentColor" stroke-opacity=".4"/>${before}` +
    `<g style="fill:var(--moving-more,#3f7fb5);stroke:var(--moving-more,#3f7fb5)"><path d="${path(now)}" fill="none" stroke-width="2"/>` +
    `${dots.join("")}</g><text x="${W / 2}" y="${H + 16}" text-anchor="middle">${text(p.axis)}</text>`);
}

function image(p) {
  const m = p.pixels.length, n = p.pixels[0].length, canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [n, m];
  const pen = canvas.getContext("2d"), grays = pen.createImageData(n, m);
  p.pixels.flat().forEach((v, i) => grays.data.set([v, v, v, 100].map(a => clip(Math.round(2.55 * a), 0, 255)), 4 * i));
  pen.putImageData(grays, 0, 0);
  return svg(p, 4 * n, 4 * m, `<image href="${canvas.toDataURL()}" width="${4 * n}" height="${4 * m}" style="image-rendering:pixelated"/>`);
}

const draw = p => p.draw ? p.draw(p) : p.lines ? curves(p) : p.pixels ? image(p) : cells(p);

/* ---- tensors of three modes ---- */

const numbers = (title, rows, marks, top) =>
  ({title, cell: 28, shades: rows.map(row => row.map(v => v / top)), texts: rows.map(row => row.map(num)), marks});

function unfold(x, mode) {      // row-major: of the other two indices the last runs fastest
  const sizes = [x.length, x[0].length, x[0][0].length], [p, q] = [0, 1, 2].filter(m => m !== mode);
  const places = range(sizes[p] * sizes[q]).map(col => range(sizes[mode]).map(row => {
    const at = []; at[mode] = row; at[p] = Math.floor(col / sizes[q]); at[q] = col % sizes[q];
    return at;
  }));
  return {places, rows: range(sizes[mode]).map(r => places.map(fiber => fiber[r].reduce((t, i) => t[i], x)))};
}

/* ---- the kinds ---- */

const kinds = {};

kinds.looks = {
  first: d => { const n = d.maps[0].length; return {n, i: Math.floor(n / 2), j: Math.floor(n / 2)}; },
  controls: d => [{key: "n", label: "positions on each side", low: 2, high: d.maps[0].length}],
  change(d, s) { s.i = Math.min(s.i, s.n - 1); s.j = Math.min(s.j, s.n - 1); },
  rows(d, s) {
    const N = d.maps[0].length, [a, b] = [cut(d.maps[0][s.i], s.n), cut(d.maps[1][s.j], s.n)];
    const full = d.full[s.i * N + s.j].filter((_, k) => Math.floor(k / N) < s.n && k % N < s.n);
    const flat = cut(full, full.length), grid = f => range(s.n).map(r => range(s.n).map(c => f(r, c)));
    return {full: grid((r, c) => flat[r * s.n + c]), product: grid((r, c) => a[r] * b[c]),
            sum: grid((r, c) => ((c === s.j) * a[r] + (r === s.i) * b[c]) / 2)};
  },
  panels(d, s) {
    const rows = this.rows(d, s), top = Math.max(...Object.values(rows).map(most)), n = s.n;
    const weights = {full: n ** 4, product: 2 * n * n, sum: 2 * n * n};
    return Object.entries(rows).map(([name, own], k) => ({
      title: `${name}: ${count(weights[name])} weights`, cell: 24,
      shades: own.map(row => row.map(v => Math.sqrt(v / top))), marks: [[s.i, s.j]],
      at: [s.i, s.j], hint: "arrow keys move the query", quiet: k > 0, pick: (r, c) => { [s.i, s.j] = [r, c]; }}));
  },
  says(d, s) {
    const n = s.n, one = count(n ** 4), two = count(2 * n * n), work = count(2 * n ** 3), seen = [n * n, n * n, 2 * n - 1];
    return `The query in row ${s.i + 1}, column ${s.j + 1} looks at ${seen.join(", ")} of the ${n * n} positions. ` +
      `For all queries: full attention has ${one} weights and takes ${one} multiply-adds for each feature; ` +
      `product and sum have ${two} weights and take ${work}.`;
  },
};

kinds.kronecker = {
  first: d => ({r: 0, c: d.b[0].length}),
  controls: () => [],
  panels(d, s) {
    const [p, q] = [d.b.length, d.b[0].length], top = most(d.a) * most(d.b);
    const [i, r, j, c] = [Math.floor(s.r / p), s.r % p, Math.floor(s.c / q), s.c % q];
    const large = range(d.a.length * p).map(y => range(d.a[0].length * q).map(x =>
      d.a[Math.floor(y / p)][Math.floor(x / q)] * d.b[y % p][x % q]));
    return [numbers("A", d.a, [[i, j]], top), numbers("B", d.b, [[r, c]], top),
      {...numbers("A ⊗ B", large, [[s.r, s.c]], top), at: [s.r, s.c], hint: "arrow keys choose an entry",
       pick: (y, x) => { [s.r, s.c] = [y, x]; }}];
  },
  says(d, s) {
    const [p, q] = [d.b.length, d.b[0].length];
    const [i, r, j, c] = [Math.floor(s.r / p), s.r % p, Math.floor(s.c / q), s.c % q], [a, b] = [d.a[i][j], d.b[r][c]];
    return `Counted from 0, row ${s.r} of A ⊗ B is row ${r} of block row ${i}; column ${s.c} is column ${c} of block ` +
      `column ${j}. The entry is A(${i}, ${j}) · B(${r}, ${c}) = ${num(a)} · ${num(b)} = ${num(a * b)}.`;
  },
};

kinds.modeproduct = {
  first: () => ({mode: 1, fiber: 1}),
  controls: (d, s) => [{key: "mode", label: "mode", choices: [1, 2, 3]},
    {key: "fiber", label: "fiber", low: 1, high: () => unfold(d.x, s.mode - 1).places.length}],
  change(d, s) { s.fiber = Math.min(s.fiber, unfold(d.x, s.mode - 1).places.length); },
  find(d, s) {
    const m = s.mode - 1, A = d.matrices[m], {places, rows} = unfold(d.x, m);
    const product = A.map(a => places.map((_, c) => sum(a.map((v, r) => v * rows[r][c]))));
    const sizes = [d.x.length, d.x[0].length, d.x[0][0].length];
    sizes[m] = A.length;
    const y = range(sizes[0]).map(() => range(sizes[1]).map(() => []));
    places.forEach((fiber, c) => A.forEach((_, r) => {
      const at = [...fiber[0]]; at[m] = r;
      y[at[0]][at[1]][at[2]] = product[r][c];
    }));
    return {m, A, places, rows, product, y};
  },
  panels(d, s) {
    const {m, A, places, rows, product, y} = this.find(d, s), f = s.fiber - 1, low = "₁₂₃"[m];
    const top = Math.max(most(rows), most(product)), column = rows => rows.map((_, r) => [r, f]);
    const line = A.map((_, r) => { const at = [...places[f][0]]; at[m] = r; return at; });
    const slices = (name, t, fiber) => t.map((slice, k) =>
      numbers(`${name}, slice ${k + 1}`, slice, fiber.filter(at => at[0] === k).map(at => at.slice(1)), top));
    return [...slices("X", d.x, places[f]), {...numbers("A", A, [], most(A)), start: true},
      {...numbers(`X unfolded along mode ${s.mode}: X${low}`, rows, column(rows), top), at: [0, f],
       hint: "left and right choose a fiber", pick: (r, c) => { s.fiber = c + 1; }},
      {...numbers(`A X${low}`, product, column(product), top), start: true},
      ...slices("result", y, line).map((p, k) => ({...p, start: k === 0}))];
  },
  says(d, s) {
    const {rows, product} = this.find(d, s), own = rows => `(${rows.map(row => num(row[s.fiber - 1])).join(", ")})`;
    return `Mode ${s.mode}, fiber ${s.fiber} is ${own(rows)}. It is column ${s.fiber} of the unfolding, and A makes ${own(product)} of it.`;
  },
};

kinds.leak = {
  first: () => ({v: 0}),
  controls: d => [{key: "v", label: "value of the last step", low: 0, high: d.values.length - 1, shown: v => num(d.values[v])}],
  panels(d, s) {
    const all = d.outputs.flatMap(o => o.by_value.flat()), T = d.series.length;
    const series = [...d.series.slice(0, -1), d.values[s.v]], axis = `time 1 to ${T}`;
    const [low, high] = [Math.min(...d.values, ...d.series), Math.max(...d.values, ...d.series)];
    const nearest = v => d.values.reduce((best, w, k) => Math.abs(w - v) < Math.abs(d.values[best] - v) ? k : best, 0);
    return [{title: "input", lines: [series, d.series], low, high, axis, big: T - 1, quiet: true,
             drag: y => { s.v = nearest(low + y * (high - low)); }},
      ...d.outputs.map((o, k) => ({title: o.name, lines: [o.by_value[s.v], o.by_value[d.start]],
                                   low: Math.min(...all), high: Math.max(...all), axis, start: k === 0}))];
  },
  says(d, s) {
    const moved = o => Math.max(...o.by_value[s.v].slice(0, -1).map((v, t) => Math.abs(v - o.by_value[d.start][t])));
    return `Last value ${num(d.values[s.v])}. Outputs before the last step have moved by up to ` +
      d.outputs.map(o => `${moved(o).toFixed(2)} (${o.name})`).join(", ") + ".";
  },
};

kinds.rank = {
  first: d => ({r: Math.min(4, d.errors.length)}),
  controls: d => [{key: "r", label: "terms", low: 1, high: d.errors.length, play: true}],
  panels(d, s) {
    const made = d.left.map(row => range(d.right[0].length).map(c => d.middle + sum(range(s.r).map(k => row[k] * d.right[k][c]))));
    return [{title: "the picture", pixels: d.pixels}, {title: `${s.r} of its terms`, pixels: made}];
  },
  says(d, s) {
    const [m, n] = [d.left.length, d.right[0].length];
    return `${s.r} ${s.r === 1 ? "term" : "terms"}: ${count(s.r * (m + n))} numbers in place of ${count(m * n)}, ` +
      `relative error ${d.errors[s.r - 1].toFixed(2)}.`;
  },
};

kinds.shift = {
  first: d => ({k: d.steps.length - 1}),
  controls: d => [{key: "k", label: "updates", low: 0, high: d.steps.length - 1, shown: k => String(d.steps[k]), play: true}],
  panels: (d, s) => d.maps.map((by_step, m) => ({
    title: `map of mode ${m + 1}`, cell: 15, shades: by_step[s.k].map(row => row.map(v => v / 100)),
    marks: by_step[0].map((row, i) => [i, (i - d.shift[m] + row.length) % row.length])})),
  says: (d, s) => `After ${d.steps[s.k]} updates the error is ${d.errors[s.k].toFixed(2)} of the variance. ` +
    "The frames mark the true shift.",
};

kinds.stream = {
  first: d => ({t: Math.floor((d.frames.length + 1) / 2)}),
  controls: d => [{key: "t", label: "frame", low: 1, high: d.frames.length, play: true}],
  panels(d, s) {
    const far = rows => rows.map((row, i) => row.map(v => i < s.t ? v / 100 : 0)), marks = n => range(n).map(k => [s.t - 1, k]);
    const n = d.frames[0].length, cell = 20;
    return [{title: "frames so far", shades: far(d.frames), marks: marks(n), cell}, {title: "map of time", shades: far(d.time), marks: marks(s.t), cell},
      {title: `map of positions, frame ${s.t}`, shades: d.modes[s.t - 1].map(row => row.map(v => v / 100)), cell},
      {title: "answers so far", shades: far(d.answers), marks: marks(n), cell}];
  },
  says: (d, s) => `Frame ${s.t} of ${d.frames.length}: the answer mixes ${s.t} ${s.t === 1 ? "frame" : "frames"} of values. ` +
    `The state has ${count(d.kept[0][s.t - 1])} numbers, with a kernel ${count(d.kept[1][s.t - 1])}.`,
};

function bars(p) {
  const H = 150, W = 7 * p.sizes.length;
  const body = (from, to) => p.sizes.map((v, k) => k >= from && k < to ? `<path d="M${7 * k} ${H}v-${num(H * v / p.top)}h5V${H}z"/>` : "").join("");
  return svg(p, W, H + 2, `<g style="fill:var(--moving-more,#3f7fb5)">${body(0, p.first)}</g>` +
    `<g style="fill:var(--moving-less,#c07a2c)">${body(p.first, p.sizes.length)}</g>` +
    `<path d="M0 ${H}h${W}" fill="none" stroke="currentColor" stroke-opacity=".4"/>`);
}

function errors(p) {      // over alpha, on a logarithmic axis
  const W = 280, H = 150, low = Math.floor(Math.log10(Math.min(...p.runs.flatMap(r => r.errors.filter(Boolean)))));
  const across = k => num(8 + (W - 16) * p.alphas[k]), at = (k, v) => [across(k), num(H * clip(Math.log10(v) / low, 0, 1))];
  const line = p.floors.flatMap((v, k) => v > 10 ** low ? [at(k, v).join(" ")] : []).join("L") || "0 0";
  const ink = r => `var(--moving-${r.sign > 0 ? "more,#3f7fb5" : "less,#c07a2c"})`;
  const dot = ([x, y], r, big) => `<circle cx="${x}" cy="${y}" r="${big ? 6 : 3.5}" stroke-width="1.5" ` +
    `style="stroke:${ink(r)};fill:${r.open ? "none" : ink(r)}"/>`;
  const dots = p.runs.map(r => r.errors.map((v, k) => v ? dot(at(k, v), r, k === p.now) : "").join("")).join("");
  const named = p.runs.map((r, i) => dot([8 + 145 * (i % 2), H + 37 + 20 * Math.floor(i / 2)], r) +
    `<text x="${18 + 145 * (i % 2)}" y="${H + 42 + 20 * Math.floor(i / 2)}">${text(r.name)}</text>`).join("");
  return svg(p, W + 12, H + 25 + 20 * Math.ceil(p.runs.length / 2), `<path d="M0 ${H}h${W}M0 0v${H}M${across(p.now)} 0v${H}" fill="none" ` +
    `stroke="currentColor" stroke-opacity=".4"/><path d="M${line}" fill="none" stroke="currentColor" stroke-width="2"/>` +
    `${dots}<text x="18" y="12">1</text><text x="18" y="${H - 4}">1e${low}</text><text x="2" y="${H + 18}">α = 0</text>` +
    `<text x="${W}" y="${H + 18}" text-anchor="end">α = 1</text>${named}`);
}

kinds.dial = {
  first: d => ({k: Math.floor(2 * (d.alphas.length - 1) / 5), h: Math.floor(d.parameters.length / 2)}),
  controls: d => [{key: "k", label: "α", low: 0, high: d.alphas.length - 1, shown: k => num(d.alphas[k]), play: true},
    {key: "h", label: "hidden tensor", low: 1, high: d.parameters.length, shown: h => `${h} × ${h}`}],
  floors: (d, s) => d.squares.map(row => sum(row.slice(s.h))),
  panels(d, s) {
    const a = d.alphas[s.k], [from, to] = d.templates;
    return [{title: "the template", pixels: from.map((row, i) => row.map((v, j) => 50 + ((1 - a) * v + a * to[i][j]) / 2))},
      {title: `${s.h} of ${d.parameters.length} directions seen`, draw: bars, sizes: d.squares[s.k].map(Math.sqrt), top: Math.sqrt(most(d.squares)), first: s.h},
      {title: "test error over α", draw: errors, alphas: d.alphas, floors: this.floors(d, s), runs: d.runs, now: s.k}];
  },
  says(d, s) {
    const four = v => String(+v.toFixed(4)), [units, own] = d.rivals[s.h - 1];
    const seen = d.runs.filter(r => r.errors[s.k]).map(r => `${r.name} (${count(r.parameters)} parameters, ${r.epochs} epochs) ${four(r.errors[s.k])}`);
    return `α = ${num(d.alphas[s.k])}. NdLinear ${s.h} × ${s.h}: ${count(d.parameters[s.h - 1])} parameters, error at least ` +
      `${four(this.floors(d, s)[s.k])} of a variance of ${four(sum(d.squares[s.k]))}. The smallest dense network with as many has ` +
      `${units} unit${units > 1 ? "s" : ""} in a layer, ${count(own)} parameters and no floor. Measured: ${seen.join(", ") || "no run has this α"}.`;
  },
};

/* ---- from still to operated ---- */

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function place(event, panel) {      // of a pointer, in the units of the drawing
  const box = panel.firstChild.getBoundingClientRect(), [x, y, w, h] = panel.firstChild.getAttribute("viewBox").split(" ").map(Number);
  return [x + (event.clientX - box.left) / box.width * w, y + (event.clientY - box.top) / box.height * h];
}

function choose(p, x, y) {
  if (p.drag) return p.drag(clip(1 - y / 110, 0, 1), x, y);
  const c = p.cell || 22;
  p.pick(clip(Math.floor(y / c), 0, p.shades.length - 1), clip(Math.floor(x / c), 0, p.shades[0].length - 1));
}

const STEPS = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};

function operated(node, k, now, redraw) {      // one panel that listens; `now` gives the panel as drawn last
  let held = false;
  const point = event => { choose(now()[k], ...place(event, node)); redraw(); };
  node.classList.add("moving-hand");
  node.addEventListener("pointerdown", event => { held = true; node.setPointerCapture(event.pointerId); point(event); });
  node.addEventListener("pointermove", event => { if (held) point(event); });
  for (const end of ["pointerup", "pointercancel"]) node.addEventListener(end, () => { held = false; });
  const p = now()[k];
  if (p.quiet) return;
  for (const [key, value] of Object.entries({tabindex: 0, role: "application", "aria-label": `${p.title}: ${p.hint}`})) node.setAttribute(key, value);
  node.addEventListener("keydown", event => {
    const step = STEPS[event.key], p = now()[k];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    p.pick(clip(p.at[0] + step[0], 0, p.shades.length - 1), clip(p.at[1] + step[1], 0, p.shades[0].length - 1));
    redraw();
  });
}

let made = 0;

function slider(control, s, redraw) {
  const id = `moving-${made += 1}`, shown = control.shown || String, high = () => typeof control.high === "function" ? control.high() : control.high;
  const input = make("input", {type: "range", id, min: control.low, max: high(), step: 1});
  const value = make("output", {for: id}), node = make("div", {class: "moving-control"}, make("label", {for: id}, control.label), input, value);
  const set = v => { s[control.key] = v; redraw(); };
  input.addEventListener("input", () => set(+input.value));
  let clock = null;
  if (control.play && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
    const button = make("button", {type: "button"}, "Play");
    const stop = () => { clearInterval(clock); clock = null; button.textContent = "Play"; };
    button.addEventListener("click", () => {
      if (clock) return stop();
      if (s[control.key] >= high()) set(control.low);
      button.textContent = "Stop";
      clock = setInterval(() => s[control.key] < high() ? set(s[control.key] + 1) : stop(), 600);
    });
    node.append(button);
  }
  return {node, update() {
    input.max = high();
    input.value = s[control.key];
    value.textContent = shown(s[control.key]);
    input.setAttribute("aria-valuetext", shown(s[control.key]));
  }};
}

function radios(control, s, redraw) {
  const name = `moving-${made += 1}`, inputs = control.choices.map(v => make("input", {type: "radio", name, value: v}));
  inputs.forEach(input => input.addEventListener("change", () => { s[control.key] = +input.value; redraw(); }));
  const node = make("fieldset", {class: "moving-control"}, make("legend", {}, control.label),
    ...inputs.map((input, k) => make("label", {}, input, ` ${(control.names || control.choices)[k]}`)));
  return {node, update() { inputs.forEach(input => { input.checked = +input.value === s[control.key]; }); }};
}

function start(root) {
  const kind = kinds[root.dataset.moving], stage = root.querySelector(".moving-stage"), says = root.querySelector(".moving-says");
  if (!kind || !stage || root.dataset.operated) return;
  const d = JSON.parse(root.querySelector("script").textContent), s = kind.first(d), nodes = [];
  let panels = [];
  const controls = kind.controls(d, s).map(c => (c.choices ? radios : slider)(c, s, redraw));
  function redraw() {
    if (kind.change) kind.change(d, s);
    panels = kind.panels(d, s);
    panels.forEach((p, k) => {
      if (!nodes[k]) {
        if (p.start) stage.append(make("span", {class: "moving-line"}));
        stage.append(nodes[k] = make("div", {class: "moving-panel"}));
        if (p.pick || p.drag) operated(nodes[k], k, () => panels, redraw);
      }
      nodes[k].innerHTML = draw(p);
      for (const [key, value] of Object.entries({role: "img", "aria-label": p.title})) nodes[k].firstChild.setAttribute(key, value);
    });
    controls.forEach(control => control.update());
    says.textContent = kind.says(d, s);
  }
  stage.replaceChildren();
  stage.setAttribute("role", "group");
  root.dataset.operated = "yes";
  redraw();
  if (controls.length) stage.after(make("div", {class: "moving-controls"}, ...controls.map(c => c.node)));
  says.setAttribute("aria-live", "polite");
}

const all = () => document.querySelectorAll(".moving[data-moving]").forEach(start);
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", all);
else all();
})();
