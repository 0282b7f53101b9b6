// A flow on a canvas: its particles, images and samples at a time that the player chooses. What is pointed at, turned
// or shown alone is in the state of the player.

function scene(story, state, changed) {
  const { n, dim, steps, classes, target } = story;
  const last = steps.length - 1;
  const points = unpack(story.points, Int16Array); // [frame][sample][axis]
  const codes = unpack(story.codes, Uint16Array); // [frame][sample], or one frame where labels stay
  const origin = unpack(story.origin, Uint32Array);
  const goal = target && {
    points: unpack(target.points, Int16Array),
    codes: unpack(target.codes, Uint16Array),
  };
  const codeOf = (i, frame) => codes[(story.moving ? frame * n : 0) + i];
  const nameOf = (code) => (code === NO_CLASS ? "no label" : classes[code]);
  const placeOf = new Map(Array.from(origin, (row, i) => [row, i]));

  let time = 0; // counted in frames
  const chosen = () => placeOf.get(state.hover ?? state.pinned) ?? null;
  const frameNow = () => Math.round(time);
  const colourOf = (code) => (code === NO_CLASS ? GREY : story.marks[ground()][code]);
  const shapeOf = (code) => (code === NO_CLASS ? undefined : story.marks.shapes[code]);

  const stamps = new Map(); // a mark is drawn once, then copied thousands of times
  function stamp(code, r, ratio, hollow) {
    const key = `${code} ${r} ${ratio} ${hollow} ${isDark()}`;
    if (!stamps.has(key)) {
      const side = Math.ceil((3 * r + 2) * ratio), canvas = make("canvas", { width: side, height: side }), pen = canvas.getContext("2d");
      outline(pen, shapeOf(code), side / 2, side / 2, r * ratio);
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

  function placesAt(time, view) {
    const frame = Math.min(Math.floor(time), last), next = Math.min(frame + 1, last);
    return places(dim, points, frame * n * dim, next * n * dim, time - frame, n, view);
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

  const stage = find("particles");
  let behind = null; // the target, drawn once for each size, theme, view and choice of class
  let spots = null; // where the particles are, for pointing at them
  function drawParticles() {
    const { pen, width, height, ratio } = prepare(stage);
    const margin = story.axes ? { left: 40, low: 30, edge: 12 } : { left: 12, low: 12, edge: 12 };
    const view = camera(story, state, width, height, margin), r = radius(width, height), frame = frameNow();
    const key = [stage.width, stage.height, isDark(), state.yaw, state.pitch, state.only].join();
    if (!behind || behind.key !== key) {
      const canvas = make("canvas", { width: stage.width, height: stage.height }), back = canvas.getContext("2d");
      back.setTransform(ratio, 0, 0, ratio, 0, 0);
      if (story.axes) drawAxes(back, view, width, height, margin);
      if (dim === 3) drawBox(back, view);
      if (goal) scatter(back, places(dim, goal.points, 0, 0, 0, target.n, view), target.n, (i) => goal.codes[i], r, ratio, true);
      behind = { key, canvas };
    }
    pen.drawImage(behind.canvas, 0, 0, width, height);
    spots = placesAt(time, view);
    scatter(pen, spots, n, (i) => codeOf(i, frame), r, ratio, false);
    if (chosen() !== null) drawChosen(pen, chosen(), view, r);
  }
  function drawChosen(pen, i, view, r) {
    const ink = getComputedStyle(stage).color;
    pen.strokeStyle = ink;
    pen.lineWidth = 1.2;
    pen.beginPath(); // the way it takes
    for (let frame = 0; frame <= last; frame++) {
      const k = (frame * n + i) * dim, spot = places(dim, points, k, k, 0, 1, view);
      pen.lineTo(spot.x[0], spot.y[0]);
    }
    pen.stroke();
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(spots.x[i], spots.y[i], r + 4, 0, 2 * Math.PI);
    pen.stroke();
  }
  function drawAxes(pen, view, width, height, margin) {
    const unit = (view.scale * FULL) / story.half;
    pen.strokeStyle = colourNow("--faint");
    pen.fillStyle = colourNow("--soft");
    pen.font = `${colourNow("--tiny")} system-ui, sans-serif`;
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
    pen.strokeStyle = colourNow("--line");
    for (let k = 0; k < 8; k++)
      for (let axis = 0; axis < 3; axis++)
        if (!(k & (1 << axis))) {
          const [a, b] = [corner(k), corner(k | (1 << axis))].map((c) => view.turned(...c));
          line(pen, view.cx + view.scale * a[0], view.cy - view.scale * a[1], view.cx + view.scale * b[0], view.cy - view.scale * b[1]);
        }
  }

  // Images: cells of sprites.

  const sheets = sheetBook(), { drawCell } = sheets;
  const cells = [];
  function buildGrid() {
    const rows = story.grid.rows;
    find("grid").style.setProperty("--columns", story.grid.columns);
    rows.forEach((i, k) => {
      const canvas = make("canvas"), button = make("button", { type: "button", tabIndex: k ? -1 : 0 }, canvas);
      button.setAttribute("aria-label", `Sample ${origin[i]}, class ${nameOf(codeOf(i, 0))}`);
      button.addEventListener("pointerenter", () => point(i));
      button.addEventListener("pointerleave", () => point(null));
      button.addEventListener("focus", () => pin(i));
      button.addEventListener("click", () => pin(i));
      cells.push({ canvas, button, i });
    });
    find("grid").append(...cells.map((cell) => cell.button));
    find("grid").addEventListener("keydown", (event) => {
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

  function thumb(name, i) {
    const canvas = drawCell(make("canvas"), name, i);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Sample ${origin[i]} at the ${name}`);
    return make("li", {}, canvas, make("div", { text: name }));
  }
  let shown;
  function drawDetails() {
    const i = chosen(), key = i === null ? "" : `${i} ${story.moving ? frameNow() : 0}`;
    if (key === shown) return;
    shown = key;
    if (i === null) return find("details").replaceChildren();
    const first = nameOf(codeOf(i, 0)), now = nameOf(codeOf(i, frameNow()));
    const head = make("p", {}, make("b", { text: `Sample ${origin[i]}` }), `, class ${first}${now === first ? "" : `, now ${now}`}`);
    const list = make("ul", { className: "thumbs" });
    if (story.thumbs)
      list.append(thumb("start", i), make("li", { className: "arrow", text: "→" }), thumb("end", i));
    find("details").replaceChildren(head, list);
  }
  const rowOf = (i) => (i === null ? null : origin[i]);
  function point(i) {
    if (state.hover === rowOf(i)) return;
    state.hover = rowOf(i);
    changed();
  }
  function pin(i) {
    [state.pinned, state.hover] = [rowOf(i), null];
    changed();
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
    find("turn").hidden = false;
    find("turn").addEventListener("click", (event) => {
      const [yaw, pitch] = (event.target.dataset.turn ?? "0,0").split(",").map(Number);
      turn(state.yaw + yaw, state.pitch + pitch);
    });
  }
  function turn(yaw, pitch) {
    state.yaw = yaw;
    state.pitch = Math.min(1.5, Math.max(-1.5, pitch));
    changed();
  }

  function buildLegend() {
    const entry = (code, text, hollow) => {
      const canvas = make("canvas", { className: "swatch", width: 22, height: 22 });
      const draw = () => {
        const pen = canvas.getContext("2d");
        pen.clearRect(0, 0, 22, 22);
        outline(pen, shapeOf(code), 11, 11, 8);
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
        changed(true);
      });
      find("legend").append(button);
    });
    if (goal) find("legend").append(make("span", { className: "quiet", style: "padding: 4px 8px; display: inline-flex; gap: 5px; align-items: center" }, ...entry(NO_CLASS, `${story.names[1]} (hollow)`, true)));
  }
  const swatches = [];

  // Film: a few moments side by side, which is also what a printed page shows.

  const film = [];
  function buildFilm() {
    for (const frame of new Set([0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * last)))) {
      const canvas = make("canvas"), images = story.grid ? make("canvas") : null;
      const button = make("button", { type: "button" }, canvas, ...(images ? [images] : []), `step ${steps[frame]}`);
      button.addEventListener("click", () => state.go(frame));
      film.push({ frame, canvas, images, button });
    }
    find("film").append(...film.map((moment) => moment.button));
  }
  function drawFilm() {
    for (const { frame, canvas, images } of film) {
      if (!canvas.clientWidth) continue; // not shown on a small screen
      const { pen, width, height, ratio } = prepare(canvas), view = camera(story, state, width, height, { left: 5, low: 5, edge: 5 });
      const r = Math.max(0.9, 0.8 * radius(width, height));
      if (goal) scatter(pen, places(dim, goal.points, 0, 0, 0, target.n, view), target.n, (i) => goal.codes[i], r, ratio, true);
      scatter(pen, placesAt(frame, view), n, (i) => codeOf(i, frame), r, ratio, false);
      if (images) drawMosaic(images, frame);
    }
  }
  function drawMosaic(canvas, frame) {
    const { image, width, height } = sheets.named.grid, across = 5, down = 2, many = cells.length;
    Object.assign(canvas, { width: across * width, height: down * height });
    for (let k = 0; k < Math.min(across * down, many); k++) {
      const row = Math.floor((k * many) / Math.min(across * down, many)); // spread over the classes
      canvas.getContext("2d").drawImage(image, frame * width, row * height, width, height, (k % across) * width, Math.floor(k / across) * height, width, height);
    }
  }

  function draw(at) {
    time = at;
    drawParticles();
    if (story.grid) drawGrid();
    drawDetails();
    [...find("legend").querySelectorAll("button")].forEach((button, k) => button.setAttribute("aria-pressed", String(state.only === k)));
    film.forEach(({ frame, button }) => button.setAttribute("aria-current", String(frame === frameNow())));
  }
  function repaint() {
    behind = null;
    swatches.forEach((swatch) => swatch());
    drawFilm();
  }
  async function start() {
    if (story.grid) {
      await sheets.load("grid", story.grid.sprite);
      await Promise.all(Object.entries(story.thumbs).map(([name, sprite]) => sheets.load(name, sprite)));
      buildGrid();
    }
    buildLegend();
    buildFilm();
    watchStage();
  }
  return { start, draw, drawFilm, repaint, rows: origin };
}
