// What epsilon does: entropic transport between two small clouds, solved here for each place of a slider.
// Costs are ½ ‖x − y‖², and OT = min ⟨P, C⟩ + ε KL(P | a ⊗ b), as in the library, which a test compares with.
"use strict";
(() => {
  const COUNT = 20, PLACES = 41, LEAST = 0.001, MOST = 3, FIRST = 13;
  const share = (place) => LEAST * (MOST / LEAST) ** (place / (PLACES - 1));

  function clouds() {
    let seed = 7;
    const uniform = () => ((seed = (seed * 16807) % 2147483647) - 1) / 2147483646;
    const normal = () => Math.sqrt(-2 * Math.log(uniform() + 1e-12)) * Math.cos(2 * Math.PI * uniform());
    const source = [], target = [];
    for (let i = 0; i < COUNT; i++) {
      source.push([-1.1 + 0.22 * normal(), (i % 2 ? 0.55 : -0.55) + 0.22 * normal()]);
      const angle = 1.6 * Math.PI * (i / (COUNT - 1) - 0.5);
      target.push([0.4 + 1.25 * Math.cos(angle) + 0.04 * normal(), 1.25 * Math.sin(angle) + 0.04 * normal()]);
    }
    return { source, target };
  }
  const costs = (x, y) => x.map((p) => Float64Array.from(y, (q) => ((p[0] - q[0]) ** 2 + (p[1] - q[1]) ** 2) / 2));
  const mean = (C) => C.reduce((sum, row) => sum + row.reduce((s, c) => s + c, 0), 0) / (C.length * C[0].length);
  const transposed = (C) => Array.from(C[0], (_, j) => Float64Array.from(C, (row) => row[j]));

  // −ε log Σ_j exp((g_j − C_j) / ε) / m, without overflow
  function soft(row, g, epsilon) {
    let top = -Infinity, sum = 0;
    for (let j = 0; j < row.length; j++) top = Math.max(top, g[j] - row[j]);
    for (let j = 0; j < row.length; j++) sum += Math.exp((g[j] - row[j] - top) / epsilon);
    return -top - epsilon * Math.log(sum / row.length);
  }
  // Sinkhorn's iteration in potentials, from those of a larger epsilon; all weights are equal.
  function solve(C, epsilon, start = null, tol = 1e-6, most = 3000) {
    const D = transposed(C), n = C.length, m = D.length;
    let f = start ? start.f : new Float64Array(n), g = start ? start.g : new Float64Array(m), iterations = 0, error = 1;
    while (error > tol && iterations < most) {
      f = Float64Array.from(C, (row) => soft(row, g, epsilon));
      const next = Float64Array.from(D, (row) => soft(row, f, epsilon));
      error = next.reduce((sum, value, j) => sum + Math.abs(Math.exp((g[j] - value) / epsilon) - 1), 0) / m;
      g = next;
      iterations++;
    }
    const P = C.map((row, i) => Float64Array.from(row, (c, j) => Math.exp((f[i] + g[j] - c) / epsilon) / (n * m)));
    const value = f.reduce((s, v) => s + v, 0) / n + g.reduce((s, v) => s + v, 0) / m;
    const moved = P.reduce((sum, row, i) => sum + row.reduce((s, p, j) => s + p * C[i][j], 0), 0);
    return { f, g, P, value, moved, iterations, error };
  }
  function all({ source, target }) {
    const C = costs(source, target), A = costs(source, source), B = costs(target, target), unit = mean(C), found = [];
    let last = [null, null, null];
    for (let place = PLACES - 1; place >= 0; place--) {
      const epsilon = share(place) * unit;
      last = [C, A, B].map((cost, k) => solve(cost, epsilon, last[k]));
      const [cross, self, other] = last;
      const spread = cross.P.map((row) => {
        const mass = row.reduce((s, p) => s + p, 0);
        return Math.exp(-row.reduce((s, p) => s + (p > 0 ? (p / mass) * Math.log(p / mass) : 0), 0));
      });
      found[place] = {
        epsilon, share: share(place), plan: cross.P, moved: cross.moved, iterations: cross.iterations,
        divergence: cross.value - (self.value + other.value) / 2,
        biased: cross.value,
        partners: spread.reduce((s, v) => s + v, 0) / COUNT,
      };
    }
    return found;
  }
  window.epsilonFigure = { clouds, costs, solve, all };

  const place = document.getElementById("epsilon-figure");
  if (!place) return;
  const $ = (name) => place.querySelector(`[data-is=${name}]`);
  const data = clouds(), found = all(data), slider = $("slider");
  slider.max = PLACES - 1;
  slider.value = FIRST;

  const colour = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
  function pen(canvas) {
    const ratio = window.devicePixelRatio || 1, { width, height } = canvas.getBoundingClientRect();
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    return { context, width, height };
  }
  const own = (name) => getComputedStyle(place).getPropertyValue(name).trim();
  function dot(context, x, y, r, fill, stroke) {
    context.beginPath();
    context.arc(x, y, r, 0, 7);
    if (fill) { context.fillStyle = fill; context.fill(); }
    if (stroke) { context.strokeStyle = stroke; context.stroke(); }
  }
  function drawPlan(now) {
    const BLUE = own("--live-blue"), ORANGE = own("--live-orange");
    const { context, width, height } = pen($("plan")), ink = colour("--color-foreground-primary"), paper = colour("--color-background-primary");
    const scale = Math.min(width / 3.8, height / 3), at = ([x, y]) => [width / 2 + scale * (x - 0.05), height / 2 - scale * y];
    context.strokeStyle = colour("--color-foreground-muted");
    context.lineWidth = 1.2;
    data.source.forEach((p, i) => data.target.forEach((q, j) => {
      const strength = Math.min(1, now.plan[i][j] * COUNT); // a share of the sample's mass
      if (strength < 0.01) return;
      context.globalAlpha = Math.sqrt(strength) * 0.9;
      context.beginPath();
      context.moveTo(...at(p));
      context.lineTo(...at(q));
      context.stroke();
    }));
    context.globalAlpha = 1;
    context.lineWidth = 1.6;
    data.target.forEach((q) => dot(context, ...at(q), 5, paper, ink));
    data.source.forEach((p, i) => dot(context, ...at(p), 4.5, i % 2 ? BLUE : ORANGE));
    data.source.forEach((p, i) => {
      const mass = now.plan[i].reduce((s, v) => s + v, 0), image = [0, 1].map((k) => data.target.reduce((s, q, j) => s + (now.plan[i][j] * q[k]) / mass, 0));
      const [x, y] = at(image);
      context.fillStyle = i % 2 ? BLUE : ORANGE;
      context.beginPath();
      context.moveTo(x, y - 5); context.lineTo(x + 5, y); context.lineTo(x, y + 5); context.lineTo(x - 5, y);
      context.fill();
    });
  }
  function drawCurves(now, index) {
    const { context, width, height } = pen($("curves")), ink = colour("--color-foreground-secondary");
    const left = 40, low = 34, top = 12, right = 12, most = 1.08 * Math.max(...found.map((one) => one.moved));
    const x = (k) => left + ((width - left - right) * k) / (PLACES - 1), y = (v) => height - low - ((height - low - top) * v) / most;
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = context.strokeStyle = ink;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(left, top); context.lineTo(left, height - low); context.lineTo(width - right, height - low);
    context.stroke();
    for (const one of [0.001, 0.01, 0.1, 1]) {
      const k = ((PLACES - 1) * Math.log(one / LEAST)) / Math.log(MOST / LEAST);
      context.textAlign = "center";
      context.fillText(one < 1 ? `${+(100 * one).toFixed(1)} %` : "100 %", Math.max(x(k), left + 12), height - low + 16);
    }
    context.fillText("ε as a share of the mean cost", (left + width - right) / 2, height - 3);
    context.textAlign = "right";
    for (let v = 0; v <= most; v += 0.5) context.fillText(v.toFixed(1), left - 6, y(v) + 4);
    for (const [name, line] of [["moved", own("--live-orange")], ["divergence", own("--live-blue")], ["biased", own("--live-green")]]) {
      context.strokeStyle = line;
      context.lineWidth = 2;
      context.beginPath();
      found.forEach((one, k) => context.lineTo(x(k), y(one[name])));
      context.stroke();
      dot(context, x(index), y(now[name]), 4.5, line);
    }
    context.strokeStyle = ink;
    context.globalAlpha = 0.4;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x(index), top); context.lineTo(x(index), height - low);
    context.stroke();
    context.globalAlpha = 1;
  }
  function show() {
    const index = Number(slider.value), now = found[index], percent = 100 * now.share;
    const said = `ε = ${percent < 1 ? percent.toFixed(2) : percent.toFixed(percent < 10 ? 1 : 0)} % of the mean cost = ${now.epsilon.toPrecision(2)}`;
    slider.setAttribute("aria-valuetext", said);
    $("epsilon").textContent = said;
    $("partners").textContent = now.partners.toFixed(1);
    $("moved").textContent = now.moved.toFixed(3);
    $("divergence").textContent = now.divergence.toFixed(3);
    $("biased").textContent = now.biased.toFixed(3);
    $("iterations").textContent = now.iterations;
    drawPlan(now);
    drawCurves(now, index);
  }
  slider.addEventListener("input", show);
  window.addEventListener("resize", show);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  new MutationObserver(show).observe(document.body, { attributes: true, attributeFilter: ["data-theme"] });
  show();
  place.dataset.ready = "yes";
})();
