"use strict";
// The player of a report: one time, shared by particles, images, charts and film. Names are only ever set as text.
(() => {
  const story = JSON.parse(document.getElementById("story").textContent);
  const $ = (id) => document.getElementById(id);
  const FULL = 32767, NO_CLASS = 65535, GREY = "#8A8A8A";

  function make(tag, options = {}, ...children) {
    const { text, dataset, ...rest } = options;
    const node = Object.assign(document.createElement(tag), rest);
    if (text !== undefined) node.textContent = text;
    Object.assign(node.dataset, dataset);
    node.append(...children);
    return node;
  }

  function unpack(text, Kind) {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
    return new Kind(bytes.buffer);
  }

  const { n, dim, steps, classes, target } = story;
  const last = steps.length - 1;
  const points = unpack(story.points, Int16Array); // [frame][sample][axis]
  const codes = unpack(story.codes, Uint16Array); // [frame][sample], or one frame where labels stay
  const origin = unpack(story.origin, Uint32Array);
  const goal = target && {
    points: target.points && unpack(target.points, Int16Array),
    codes: unpack(target.codes, Uint16Array),
    own: unpack(target.own, Int16Array),
    origin: unpack(target.origin, Uint32Array),
  };
  const partners = story.partners && {
    count: story.partners.count,
    positions: unpack(story.partners.positions, Uint16Array),
    shares: unpack(story.partners.shares, Uint16Array),
  };
  const codeOf = (i, frame) => codes[(story.moving ? frame * n : 0) + i];
  const nameOf = (code) => (code === NO_CLASS ? "no label" : classes[code]);
  const format = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(4))));

  const state = { time: 0, playing: false, pinned: null, hover: null, only: null, yaw: -0.9, pitch: 0.35 };
  const chosen = () => state.hover ?? state.pinned;
  const frameNow = () => Math.round(state.time);

  // Colours and marks, as in the figures of the library.

  const isDark = () => document.documentElement.dataset.theme === "dark";
  const ground = () => (isDark() ? "dark" : "light");
  const colourOf = (code) => (code === NO_CLASS ? GREY : story.marks[ground()][code]);
  // Corners of each marker as [angle in turns from the top, radius]; a disc has none.
  const ring = (count, turn, ...radii) => Array.from({ length: count }, (_, k) => [turn + k / count, radii[k % radii.length]]);
  const plus = (turn) => ring(4, 0, 1).flatMap(([t]) => [[t - 0.06, 1.15], [t + 0.06, 1.15], [t + 0.125, 0.55]].map(([a, r]) => [a + turn, r]));
  const SHAPES = {
    "^": ring(3, 0, 1.3), v: ring(3, 0.5, 1.3), s: ring(4, 0.125, 1.25), D: ring(4, 0, 1.25),
    P: plus(0), X: plus(0.125), "*": ring(10, 0, 1.45, 0.6),
  };
  function outline(pen, code, x, y, r) {
    const corners = code === NO_CLASS ? undefined : SHAPES[story.marks.shapes[code]];
    pen.beginPath();
    if (!corners) return pen.arc(x, y, r, 0, 2 * Math.PI);
    for (const [turn, size] of corners) pen.lineTo(x + size * r * Math.sin(2 * Math.PI * turn), y - size * r * Math.cos(2 * Math.PI * turn));
    pen.closePath();
  }
  const stamps = new Map(); // a mark is drawn once, then copied thousands of times
  function stamp(code, r, ratio, hollow) {
    const key = `${code} ${r} ${ratio} ${hollow} ${isDark()}`;
    if (!stamps.has(key)) {
      const side = Math.ceil((3 * r + 2) * ratio), canvas = make("canvas", { width: side, height: side }), pen = canvas.getContext("2d");
      outline(pen, code, side / 2, side / 2, r * ratio);
      pen.fillStyle = pen.strokeStyle = colourOf(code);
      pen.lineWidth = (hollow ? 0.9 : 0.5) * ratio;
      if (!hollow) {
        pen.fill();
        pen.strokeStyle = isDark() ? "rgba(0,0,0,.55)" : "rgba(40,40,40,.45)";
      }
      pen.stroke();
      stamps.set(key, canvas);
    }
    return stamps.get(key);
  }

  // Particles: from packed numbers to places on a canvas.

  function camera(width, height, margin) {
    const [a, b, c = 0] = story.extent;
    if (dim === 2) {
      const left = margin.left, low = margin.low, edge = margin.edge;
      const scale = Math.min((width - left - edge) / (2 * a * FULL), (height - low - edge) / (2 * b * FULL));
      return { scale, cx: (width + left - edge) / 2, cy: (height - low + edge) / 2 };
    }
    const scale = (0.5 * Math.min(width, height) - 4) / (Math.hypot(a, b, c) * FULL) * 1.12;
    const [cy, sy, cp, sp] = [Math.cos(state.yaw), Math.sin(state.yaw), Math.cos(state.pitch), Math.sin(state.pitch)];
    return { scale, cx: width / 2, cy: height / 2, turned: (x, y, z) => [cy * x - sy * y, cp * z + sp * (sy * x + cy * y), cp * (sy * x + cy * y) - sp * z] };
  }
  function places(values, from, to, mix, count, view) {
    const x = new Float32Array(count), y = new Float32Array(count), depth = dim === 3 ? new Float32Array(count) : null;
    for (let i = 0; i < count; i++) {
      const k = from + i * dim, l = to + i * dim;
      let u = values[k] + mix * (values[l] - values[k]), v = values[k + 1] + mix * (values[l + 1] - values[k + 1]);
      if (depth) [u, v, depth[i]] = view.turned(u, v, values[k + 2] + mix * (values[l + 2] - values[k + 2]));
      x[i] = view.cx + view.scale * u;
      y[i] = view.cy - view.scale * v;
    }
    return { x, y, depth };
  }
  function placesAt(time, view) {
    const frame = Math.min(Math.floor(time), last), next = Math.min(frame + 1, last);
    return places(points, frame * n * dim, next * n * dim, time - frame, n, view);
  }
  function scatter(pen, spots, count, codeAt, r, ratio, hollow) {
    const order = spots.depth && Uint32Array.from({ length: count }, (_, i) => i).sort((i, j) => spots.depth[j] - spots.depth[i]); // far ones first
    const strength = hollow ? Math.max(0.16, 0.5 - count / 6000) : 0.92, marks = new Map();
    pen.globalAlpha = strength;
    for (let k = 0; k < count; k++) {
      const i = order ? order[k] : k, code = codeAt(i);
      if (!marks.has(code)) marks.set(code, stamp(code, r, ratio, hollow));
      const mark = marks.get(code), side = mark.width / ratio;
      if (state.only !== null) pen.globalAlpha = state.only === code ? strength : 0.06;
      pen.drawImage(mark, spots.x[i] - side / 2, spots.y[i] - side / 2, side, side);
    }
    pen.globalAlpha = 1;
  }
  const sides = () => (dim === 3 ? 0.78 : Math.min(0.78, Math.max(0.5, story.extent[1] / story.extent[0])));
  function prepare(canvas) {
    const width = canvas.clientWidth || 300, ratio = Math.min(window.devicePixelRatio || 1, 2);
    const tall = Math.round(Math.min(width * sides(), Math.max(280, 0.6 * window.innerHeight)));
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(tall * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(tall * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, tall);
    return { pen, width, height: tall, ratio };
  }
  const radius = (width, height) => Math.round(20 * Math.min(4.6, Math.max(1.3, 0.13 * Math.sqrt((width * height) / n)))) / 20;

  const stage = $("particles");
  let behind = null; // the target, drawn once for each size, theme, view and choice of class
  let spots = null; // where the particles are, for pointing at them
  function drawParticles() {
    const { pen, width, height, ratio } = prepare(stage);
    const margin = story.axes ? { left: 40, low: 30, edge: 12 } : { left: 12, low: 12, edge: 12 };
    const view = camera(width, height, margin), r = radius(width, height), frame = frameNow();
    const key = [stage.width, stage.height, isDark(), state.yaw, state.pitch, state.only].join();
    if (!behind || behind.key !== key) {
      const canvas = make("canvas", { width: stage.width, height: stage.height }), back = canvas.getContext("2d");
      back.setTransform(ratio, 0, 0, ratio, 0, 0);
      if (story.axes) drawAxes(back, view, width, height, margin);
      if (dim === 3) drawBox(back, view);
      if (goal && goal.points) scatter(back, places(goal.points, 0, 0, 0, target.n, view), target.n, (i) => goal.codes[i], r, ratio, true);
      behind = { key, canvas };
    }
    pen.drawImage(behind.canvas, 0, 0, width, height);
    spots = placesAt(state.time, view);
    scatter(pen, spots, n, (i) => codeOf(i, frame), r, ratio, false);
    if (chosen() !== null) drawChosen(pen, chosen(), view, r);
  }
  function drawChosen(pen, i, view, r) {
    const ink = getComputedStyle(stage).color;
    pen.strokeStyle = ink;
    pen.lineWidth = 1.2;
    pen.beginPath(); // the way it takes
    let end = null;
    for (let frame = 0; frame <= last; frame++) {
      const k = (frame * n + i) * dim, spot = places(points, k, k, 0, 1, view);
      pen.lineTo(spot.x[0], spot.y[0]);
      end = spot;
    }
    pen.stroke();
    if (partners && goal.points) {
      pen.setLineDash([3, 3]);
      for (const { position, share } of partnersOf(i)) {
        const k = position * dim, spot = places(goal.points, k, k, 0, 1, view);
        pen.globalAlpha = 0.35 + 0.65 * share;
        pen.beginPath();
        pen.moveTo(end.x[0], end.y[0]);
        pen.lineTo(spot.x[0], spot.y[0]);
        pen.stroke();
        pen.strokeRect(spot.x[0] - r - 2, spot.y[0] - r - 2, 2 * r + 4, 2 * r + 4);
      }
      pen.setLineDash([]);
      pen.globalAlpha = 1;
    }
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(spots.x[i], spots.y[i], r + 4, 0, 2 * Math.PI);
    pen.stroke();
  }
  function drawAxes(pen, view, width, height, margin) {
    const style = getComputedStyle(document.documentElement), unit = (view.scale * FULL) / story.half;
    pen.strokeStyle = style.getPropertyValue("--faint");
    pen.fillStyle = style.getPropertyValue("--soft");
    pen.font = "11px system-ui, sans-serif";
    const inverse = (place, centre, sign) => centre + (sign * place) / unit;
    pen.textAlign = "center";
    for (const value of ticks(inverse(margin.left - view.cx, story.centre[0], 1), inverse(width - view.cx, story.centre[0], 1), 7)) {
      const x = view.cx + (value - story.centre[0]) * unit;
      line(pen, x, margin.edge, x, height - margin.low);
      pen.fillText(format(value), x, height - margin.low + 13);
    }
    pen.textAlign = "right";
    for (const value of ticks(inverse(height - margin.low - view.cy, story.centre[1], -1), inverse(margin.edge - view.cy, story.centre[1], -1), 5)) {
      const y = view.cy - (value - story.centre[1]) * unit;
      line(pen, margin.left, y, width - margin.edge, y);
      pen.fillText(format(value), margin.left - 5, y + 4);
    }
    pen.textAlign = "center";
    pen.fillText(story.axes[0], width / 2, height - 4);
    pen.save();
    pen.translate(10, height / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(story.axes[1], 0, 0);
    pen.restore();
  }
  function drawBox(pen, view) {
    const corner = (k) => story.extent.map((size, axis) => (k & (1 << axis) ? 1 : -1) * size * FULL);
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--line");
    for (let k = 0; k < 8; k++)
      for (let axis = 0; axis < 3; axis++)
        if (!(k & (1 << axis))) {
          const [a, b] = [corner(k), corner(k | (1 << axis))].map((c) => view.turned(...c));
          line(pen, view.cx + view.scale * a[0], view.cy - view.scale * a[1], view.cx + view.scale * b[0], view.cy - view.scale * b[1]);
        }
  }
  function line(pen, x1, y1, x2, y2) {
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x2, y2);
    pen.stroke();
  }
  function ticks(low, high, most) {
    const rough = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * ([1, 2, 5, 10].find((k) => k * power >= rough) ?? 10), found = [];
    for (let k = Math.ceil(low / step); k * step <= high + 1e-9 * step; k++) found.push(Number((k * step).toPrecision(12)));
    return found;
  }

  // Images: cells of sprites.

  const sheets = {};
  function loadSheet(name, sprite) {
    const image = new Image();
    image.src = sprite.uri;
    sheets[name] = { ...sprite, image };
    return image.decode();
  }
  function drawCell(canvas, name, k) {
    const { image, columns, width, height } = sheets[name];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    canvas.getContext("2d").drawImage(image, (k % columns) * width, Math.floor(k / columns) * height, width, height, 0, 0, width, height);
    return canvas;
  }
  const cells = [];
  function buildGrid() {
    const rows = story.grid.rows;
    $("grid").style.setProperty("--columns", story.grid.columns);
    rows.forEach((i, k) => {
      const canvas = make("canvas"), button = make("button", { type: "button", tabIndex: k ? -1 : 0 }, canvas);
      button.setAttribute("aria-label", `Sample ${origin[i]}, class ${nameOf(codeOf(i, 0))}`);
      button.addEventListener("pointerenter", () => point(i));
      button.addEventListener("pointerleave", () => point(null));
      button.addEventListener("focus", () => pin(i));
      button.addEventListener("click", () => pin(i));
      cells.push({ canvas, button, i });
    });
    $("grid").append(...cells.map((cell) => cell.button));
    $("grid").addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -story.grid.columns, ArrowDown: story.grid.columns };
      const here = cells.findIndex((cell) => cell.button === document.activeElement), next = here + moves[event.key];
      if (here < 0 || !(event.key in moves)) return;
      event.preventDefault();
      event.stopPropagation();
      if (!cells[next]) return;
      cells[here].button.tabIndex = -1;
      cells[next].button.tabIndex = 0;
      cells[next].button.focus();
    });
  }
  function drawGrid() {
    const frame = frameNow();
    cells.forEach((cell, k) => {
      drawCell(cell.canvas, "grid", k * steps.length + frame);
      cell.button.style.borderColor = colourOf(codeOf(cell.i, frame));
      cell.button.classList.toggle("chosen", cell.i === chosen());
    });
  }

  // A sample: where it came from, and where it went.

  function partnersOf(i) {
    const found = [];
    for (let k = i * partners.count; k < (i + 1) * partners.count; k++)
      if (partners.shares[k] >= 100) found.push({ position: partners.positions[k], share: partners.shares[k] / 10000 });
    return found;
  }
  function thumb(name, k, label, ...words) {
    const item = make("li");
    if (sheets[name]) {
      const canvas = drawCell(make("canvas"), name, k);
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", label);
      item.append(canvas);
    }
    words.forEach((text) => item.append(make("div", { text })));
    return item;
  }
  let shown;
  function drawDetails() {
    const i = chosen(), key = i === null ? "" : `${i} ${story.moving ? frameNow() : 0}`;
    if (key === shown) return;
    shown = key;
    if (i === null) return $("details").replaceChildren();
    const first = nameOf(codeOf(i, 0)), now = nameOf(codeOf(i, frameNow()));
    const head = make("p", {}, make("b", { text: `Sample ${origin[i]}` }), `, class ${first}${now === first ? "" : `, now ${now}`}`);
    const parts = [head];
    const list = make("ul", { className: "thumbs" });
    if (story.thumbs)
      list.append(thumb("start", i, `Sample ${origin[i]} at the start`, "start"), make("li", { className: "arrow", text: "→" }), thumb("end", i, `Sample ${origin[i]} at the end`, "end"));
    if (partners) {
      const found = partnersOf(i);
      if (story.thumbs) list.append(make("li", { className: "arrow", text: "⇢" }));
      else parts.push(make("p", { text: found.length ? "It ends coupled to" : "Its mass is spread over many target samples" }));
      for (const { position, share } of found) {
        const own = goal.own[position] < 0 ? "no label" : target.classes[goal.own[position]];
        const label = `${story.names[1]} sample ${goal.origin[position]}, class ${own}`;
        list.append(thumb("target", position, label, `${Math.round(100 * share)} %`, `class ${own}`, `no. ${goal.origin[position]}`));
      }
    }
    $("details").replaceChildren(...parts, list);
  }
  function point(i) {
    if (state.hover === i) return;
    state.hover = i;
    show();
  }
  function pin(i) {
    state.pinned = i;
    state.hover = null;
    $("sample").value = i === null ? "" : origin[i];
    show();
  }
  function nearest(event) {
    const box = stage.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, reach = event.pointerType === "touch" ? 26 : 14;
    for (let i = 0; i < n; i++) {
      const distance = Math.hypot(spots.x[i] - x, spots.y[i] - y);
      if (distance < reach && (state.only === null || state.only === codeOf(i, frameNow()))) [best, reach] = [i, distance];
    }
    return best;
  }
  function watchStage() {
    let drag = null;
    stage.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, y: event.clientY, yaw: state.yaw, pitch: state.pitch, far: false };
      if (dim === 3) stage.setPointerCapture(event.pointerId);
    });
    stage.addEventListener("pointermove", (event) => {
      if (drag && Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 4) drag.far = true;
      if (drag && drag.far && dim === 3) turn(drag.yaw + (event.clientX - drag.x) / 120, drag.pitch + (event.clientY - drag.y) / 160);
      else if (event.pointerType !== "touch") point(nearest(event));
    });
    stage.addEventListener("pointerup", (event) => {
      if (drag && !drag.far) pin(nearest(event));
      drag = null;
    });
    stage.addEventListener("pointerleave", () => point(null));
    stage.addEventListener("pointercancel", () => (drag = null));
    if (dim !== 3) return;
    stage.classList.add("turns");
    $("turn").hidden = false;
    $("turn").addEventListener("click", (event) => {
      const [yaw, pitch] = (event.target.dataset.turn ?? "0,0").split(",").map(Number);
      turn(state.yaw + yaw, state.pitch + pitch);
    });
  }
  function turn(yaw, pitch) {
    state.yaw = yaw;
    state.pitch = Math.min(1.5, Math.max(-1.5, pitch));
    show();
  }

  function buildLegend() {
    const entry = (code, text, hollow) => {
      const canvas = make("canvas", { className: "swatch", width: 22, height: 22 });
      const draw = () => {
        const pen = canvas.getContext("2d");
        pen.clearRect(0, 0, 22, 22);
        outline(pen, code, 11, 11, 8);
        pen.fillStyle = pen.strokeStyle = colourOf(code);
        pen.lineWidth = hollow ? 2 : 1;
        if (!hollow) pen.fill();
        pen.stroke();
      };
      swatches.push(draw);
      return [canvas, make("span", { text })];
    };
    classes.forEach((name, code) => {
      const button = make("button", { type: "button", title: name }, ...entry(code, name, false));
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => {
        state.only = state.only === code ? null : code;
        [...$("legend").querySelectorAll("button")].forEach((other, k) => other.setAttribute("aria-pressed", String(state.only === k)));
        show();
        drawFilm();
      });
      $("legend").append(button);
    });
    if (goal && goal.points) $("legend").append(make("span", { className: "quiet", style: "padding: 4px 8px; display: inline-flex; gap: 5px; align-items: center" }, ...entry(NO_CLASS, `${story.names[1]} (hollow)`, true)));
  }
  const swatches = [];

  // Charts of curves, with a mark at the current step.

  const charts = [];
  function svg(tag, attributes, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }
  function buildChart(spec) {
    const width = Math.max(280, Math.min(620, spec.figure.clientWidth)), height = 200, left = 46, right = 10, top = 28, low = 24;
    const all = spec.series.flatMap((s) => s.y.filter((v) => v !== null)), xs = spec.series.flatMap((s) => s.x);
    const scale = spec.log ? Math.log10 : (v) => v;
    let [y0, y1] = [scale(Math.min(...all)), scale(Math.max(...all))], x0 = Math.min(...xs), x1 = Math.max(...xs);
    if (y1 - y0 < 1e-12) [y0, y1] = [y0 - (Math.abs(y0) || 1) * 0.1, y1 + (Math.abs(y1) || 1) * 0.1];
    if (x1 === x0) x1 = x0 + 1;
    [y0, y1] = [y0 - 0.04 * (y1 - y0), y1 + 0.04 * (y1 - y0)];
    const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right), py = (v) => height - low - ((scale(v) - y0) / (y1 - y0)) * (height - top - low);
    const lead = spec.series[0], words = `${spec.title}: from ${format(lead.y[0])} to ${format(lead.y[lead.y.length - 1])} over steps ${x0} to ${x1}`;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words });
    picture.append(svg("title", {}, words), svg("text", { x: 0, y: 14, class: "title" }, spec.title + (spec.log ? " (log scale)" : "")));
    let values = spec.log ? [] : ticks(y0, y1, 4);
    if (spec.log) {
      for (let power = Math.floor(y0); power <= y1; power++) values.push(...[1, 2, 5].map((k) => k * 10 ** power));
      values = values.filter((v) => scale(v) >= y0 && scale(v) <= y1);
      if (values.length > 6) values = values.filter((v) => Number.isInteger(Number(Math.log10(v).toFixed(9))));
    }
    for (const value of values)
      picture.append(svg("line", { x1: left, x2: width - right, y1: py(value), y2: py(value), class: "rule" }), svg("text", { x: left - 6, y: py(value) + 4, "text-anchor": "end" }, format(value)));
    for (const value of ticks(x0, x1, 6).filter(Number.isInteger)) picture.append(svg("text", { x: px(value), y: height - 8, "text-anchor": "middle" }, value));
    picture.append(svg("line", { x1: left, x2: width - right, y1: height - low, y2: height - low, class: "axis" }));
    const colour = (s, k) => (s.colour === null ? "var(--ink)" : spec.classes ? colourOf(k) : spec.series.length === 1 ? "var(--accent)" : story.palette[ground()][s.colour % 10]);
    spec.series.forEach((s, k) => {
      let path = "", pen = "M";
      s.x.forEach((x, j) => {
        if (s.y[j] === null) return (pen = "M");
        path += `${pen}${px(x).toFixed(1)} ${py(s.y[j]).toFixed(1)}`;
        pen = "L";
      });
      const dash = Math.floor(k / 10) % 4;
      picture.append(svg("path", { d: path, stroke: colour(s, k), "stroke-dasharray": ["none", "6 3", "2 3", "8 3 2 3"][dash] }));
    });
    const mark = svg("line", { class: "mark", y1: top - 4, y2: height - low }), dot = svg("circle", { r: 4, fill: "var(--accent)" });
    const reading = svg("text", { class: "reading", x: width - right, y: 14, "text-anchor": "end" });
    picture.append(mark, dot, reading);
    spec.mark = (step) => {
      const j = lead.x.reduce((best, x, k) => (Math.abs(x - step) < Math.abs(lead.x[best] - step) ? k : best), 0), x = px(Math.min(Math.max(step, x0), x1));
      mark.setAttribute("x1", x);
      mark.setAttribute("x2", x);
      dot.setAttribute("visibility", spec.series.length > 1 && spec.classes || lead.y[j] === null ? "hidden" : "visible");
      dot.setAttribute("cx", px(lead.x[j]));
      if (lead.y[j] !== null) dot.setAttribute("cy", py(lead.y[j]));
      reading.textContent = spec.classes ? `step ${step}` : `${format(lead.y[j])} at step ${lead.x[j]}`;
    };
    picture.addEventListener("click", (event) => {
      const box = picture.getBoundingClientRect(), step = x0 + (((event.clientX - box.left) / box.width) * width - left) / (width - left - right) * (x1 - x0);
      go(steps.reduce((best, s, k) => (Math.abs(s - step) < Math.abs(steps[best] - step) ? k : best), 0));
    });
    const key = make("div", { className: "key" });
    if (spec.series.length > 1)
      spec.series.forEach((s, k) => key.append(make("span", {}, make("i", { style: `background: ${colour(s, k)}` }), s.name)));
    spec.figure.replaceChildren(picture, key);
  }
  function buildCharts() {
    for (const spec of story.charts) {
      if (!spec.series.some((s) => s.y.some((v) => v !== null))) continue;
      spec.figure = make("figure");
      charts.push(spec);
    }
    $("charts").append(...charts.map((spec) => spec.figure));
    charts.forEach(buildChart);
  }

  // Film: a few moments side by side, which is also what a printed page shows.

  const film = [];
  function buildFilm() {
    for (const frame of new Set([0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * last)))) {
      const canvas = make("canvas"), images = story.grid ? make("canvas") : null;
      const button = make("button", { type: "button" }, canvas, ...(images ? [images] : []), `step ${steps[frame]}`);
      button.addEventListener("click", () => go(frame));
      film.push({ frame, canvas, images, button });
    }
    $("film").append(...film.map((moment) => moment.button));
  }
  function drawFilm() {
    for (const { frame, canvas, images } of film) {
      if (!canvas.clientWidth) continue; // not shown on a small screen
      const { pen, width, height, ratio } = prepare(canvas), view = camera(width, height, { left: 5, low: 5, edge: 5 });
      const r = Math.max(0.9, 0.8 * radius(width, height));
      if (goal && goal.points) scatter(pen, places(goal.points, 0, 0, 0, target.n, view), target.n, (i) => goal.codes[i], r, ratio, true);
      scatter(pen, placesAt(frame, view), n, (i) => codeOf(i, frame), r, ratio, false);
      if (images) drawMosaic(images, frame);
    }
  }
  function drawMosaic(canvas, frame) {
    const { image, width, height } = sheets.grid, across = 5, down = 2, many = cells.length;
    Object.assign(canvas, { width: across * width, height: down * height });
    for (let k = 0; k < Math.min(across * down, many); k++) {
      const row = Math.floor((k * many) / Math.min(across * down, many)); // spread over the classes
      canvas.getContext("2d").drawImage(image, frame * width, row * height, width, height, (k % across) * width, Math.floor(k / across) * height, width, height);
    }
  }

  // Time.

  function show() {
    const frame = frameNow(), step = steps[frame], value = story.values[frame];
    $("time").value = frame;
    $("time").setAttribute("aria-valuetext", `step ${step}`);
    $("now").textContent = `step ${step} of ${steps[last]} · F = ${format(value)}`;
    drawParticles();
    if (story.grid) drawGrid();
    drawDetails();
    charts.forEach((spec) => spec.mark(step));
    film.forEach(({ frame: moment, button }) => button.setAttribute("aria-current", String(moment === frame)));
  }
  function go(frame) {
    state.time = Math.min(last, Math.max(0, frame));
    show();
  }
  let clock = null;
  function play(on) {
    if (on && last === 0) return;
    if (on && state.time >= last) state.time = 0;
    state.playing = on;
    clock = null;
    $("play").textContent = on ? "❚❚" : "▶";
    $("play").setAttribute("aria-label", on ? "Pause" : "Play");
    if (on) requestAnimationFrame(tick);
    else go(frameNow());
  }
  function tick(now) {
    if (!state.playing) return;
    const pace = last / Math.min(12, Math.max(4, last / 8)); // frames a second
    state.time = Math.min(last, state.time + (clock === null ? 0 : ((now - clock) / 1000) * pace));
    clock = now;
    if (state.time >= last) {
      play(false);
      if (embedded()) window.setTimeout(() => frameNow() === last && play(true), 2500);
      return;
    }
    show();
    requestAnimationFrame(tick);
  }
  function keys(event) {
    const tag = event.target.tagName, typing = tag === "INPUT" && event.target.type === "number";
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: frameNow() - 1, ArrowRight: frameNow() + 1, Home: 0, End: last };
    if (event.key === " " && tag !== "BUTTON" && tag !== "SUMMARY") play(!state.playing);
    else if (event.key in moves && !event.target.closest(".scroll, pre")) {
      play(false);
      go(moves[event.key]);
    } else return;
    event.preventDefault();
  }

  function setTheme(dark) {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    swatches.forEach((draw) => draw());
    redraw();
  }
  // Inside another page, as flow.html#embed, #embed-light or #embed-dark: the player alone, which plays by itself, again and again.
  const embedded = () => window.location.hash.startsWith("#embed");
  function embed() {
    if (!embedded()) return;
    document.documentElement.dataset.embed = "yes";
    const theme = window.location.hash.split("-")[1];
    if (theme) setTheme(theme === "dark");
    else redraw();
  }
  function redraw() {
    behind = null;
    charts.forEach(buildChart);
    drawFilm();
    show();
  }

  async function start() {
    if (story.grid) {
      await loadSheet("grid", story.grid.sprite);
      await Promise.all(Object.entries(story.thumbs).map(([name, sprite]) => loadSheet(name, sprite)));
      buildGrid();
    }
    buildLegend();
    buildCharts();
    buildFilm();
    watchStage();
    const wishes = window.matchMedia("(prefers-color-scheme: dark)");
    setTheme(wishes.matches);
    wishes.addEventListener("change", () => setTheme(wishes.matches));
    $("theme").addEventListener("click", () => setTheme(!isDark()));
    $("play").addEventListener("click", () => play(!state.playing));
    $("time").addEventListener("input", () => {
      if (state.playing) play(false);
      go(Number($("time").value));
    });
    const places = new Map(Array.from(origin, (row, i) => [row, i]));
    $("sample").max = origin[n - 1];
    $("sample").addEventListener("input", () => {
      state.pinned = places.get($("sample").valueAsNumber) ?? null;
      state.hover = null;
      show();
    });
    document.addEventListener("keydown", keys);
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (width !== window.innerWidth) redraw(); // a phone's address bar changes the height alone
      width = window.innerWidth;
    });
    let before = null;
    window.addEventListener("beforeprint", () => {
      before = isDark();
      setTheme(false);
    });
    window.addEventListener("afterprint", () => setTheme(before));
    embed();
    window.addEventListener("hashchange", embed);
    if (embedded() && !window.matchMedia("(prefers-reduced-motion: reduce)").matches) play(true);
    document.documentElement.dataset.ready = "yes";
  }
  start();
})();
