"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live) return;
  const at = (id) => document.getElementById(id);
  const space = "http://www.w3.org/2000/svg";
  const points = [];
  const W = 480, H = 260, L = 62, R = 12, T = 28, B = 34;

  const short = (x) => (x === 0 ? "0" : Math.abs(x) >= 1e4 || Math.abs(x) < 1e-3 ? x.toExponential(2) : String(+x.toPrecision(4)));
  const make = (name, attributes, text) => {
    const made = document.createElementNS(space, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  function chart(title, pick) {
    const shown = points.filter((p) => pick(p) !== null);
    const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title} over steps` });
    svg.append(make("text", { class: "title", x: L, y: 15 }, title));
    if (!shown.length) return svg;
    const xs = shown.map((p) => p.index), ys = shown.map(pick);
    const low = Math.min(...ys), high = Math.max(...ys), last = Math.max(xs[xs.length - 1], xs[0] + 1);
    const log = low > 0 && high / low > 30;
    const f = log ? Math.log10 : (v) => v;
    const span = f(high) - f(low) || 1;
    const x = (v) => L + ((v - xs[0]) / (last - xs[0])) * (W - L - R);
    const y = (v) => H - B - ((f(v) - f(low)) / span) * (H - T - B);
    for (let k = 0; k <= 3; k++) {
      const v = f(low) + (span * k) / 3, value = log ? 10 ** v : v;
      svg.append(make("line", { class: "rule", x1: L, x2: W - R, y1: y(value), y2: y(value) }));
      svg.append(make("text", { x: L - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)));
    }
    for (const v of [xs[0], Math.round((xs[0] + last) / 2), last])
      svg.append(make("text", { x: x(v), y: H - B + 17, "text-anchor": "middle" }, String(v)));
    svg.append(make("text", { x: (L + W - R) / 2, y: H - 3, "text-anchor": "middle" }, log ? "step (values on a logarithmic scale)" : "step"));
    svg.append(make("path", { d: shown.map((p, k) => `${k ? "L" : "M"}${x(p.index).toFixed(1)},${y(pick(p)).toFixed(1)}`).join("") }));
    return svg;
  }

  function draw() {
    at("none").hidden = points.length > 0;
    live.replaceChildren(...(points.length ? [chart("Value", (p) => p.value), chart("Speed of the particles", (p) => p.speed)] : []));
    if (!points.length) return;
    const last = points[points.length - 1];
    at("first").textContent = short(points[0].value);
    at("value").textContent = short(last.value);
    at("seconds").textContent = last.seconds === null ? "–" : last.seconds.toFixed(1);
  }

  async function ask() {
    let wait = 1500;
    try {
      const after = points.length ? points[points.length - 1].index : -1;
      const answer = await fetch(`/run/${live.dataset.run}/curve?after=${after}`);
      const found = await answer.json();
      if (found.steps < after) points.length = 0; // begun anew
      points.push(...found.points);
      at("steps").textContent = found.wanted === null ? String(found.steps) : `${found.steps} of ${found.wanted}`;
      at("status").textContent = found.status;
      at("status").className = `status status-${found.status.startsWith("interrupted") ? "interrupted" : found.status}`;
      at("message").textContent = found.message;
      at("message").hidden = !found.message;
      at("report").hidden = !found.report;
      draw();
      wait = found.more ? 0 : found.running ? 1500 : 6000;
    } catch {
      at("status").textContent = "the server does not answer";
    }
    setTimeout(ask, wait);
  }
  ask();
})();
