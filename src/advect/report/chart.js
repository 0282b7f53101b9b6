// A chart of curves over steps, with a mark at the current one.

function drawChart(spec, { palette, seek }) {
  const width = Math.max(280, spec.figure.clientWidth), height = 200, left = 52, right = 10, top = 28, low = 24;
  const all = spec.series.flatMap((s) => s.y.filter((v) => v !== null)), xs = spec.series.flatMap((s) => s.x);
  const scale = spec.log ? Math.log10 : (v) => v;
  let [y0, y1] = [scale(Math.min(...all)), scale(Math.max(...all))], x0 = Math.min(...xs), x1 = Math.max(...xs);
  if (y1 - y0 < 1e-12) [y0, y1] = [y0 - (Math.abs(y0) || 1) * 0.1, y1 + (Math.abs(y1) || 1) * 0.1];
  if (x1 === x0) x1 = x0 + 1;
  [y0, y1] = [y0 - 0.04 * (y1 - y0), y1 + 0.04 * (y1 - y0)];
  const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right), py = (v) => height - low - ((scale(v) - y0) / (y1 - y0)) * (height - top - low);
  const lead = spec.series[0];
  const told = (s) => `from ${format(s.y[0])} to ${format(s.y[s.y.length - 1])}`;
  const words = `${spec.title}: ${told(lead)} over steps ${x0} to ${x1}`;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words });
  picture.append(svg("title", {}, words), svg("text", { x: 0, y: 14, class: "title" }, spec.title + (spec.log ? " (log scale)" : "")));
  for (const value of spec.log ? powers(y0, y1, 5) : ticks(y0, y1, 4))
    picture.append(svg("line", { x1: left, x2: width - right, y1: py(value), y2: py(value), class: "rule" }), svg("text", { x: left - 6, y: py(value) + 4, "text-anchor": "end" }, format(value)));
  for (const value of ticks(x0, x1, 6).filter(Number.isInteger)) picture.append(svg("text", { x: px(value), y: height - 8, "text-anchor": "middle" }, value));
  picture.append(svg("line", { x1: left, x2: width - right, y1: height - low, y2: height - low, class: "axis" }));
  const colour = (s) => {
    if (s.colour === null) return "var(--ink)";
    return spec.series.length === 1 ? "var(--accent)" : palette[ground()][s.colour % 10];
  };
  spec.series.forEach((s, k) => {
    let path = "", pen = "M";
    s.x.forEach((x, j) => {
      if (s.y[j] === null) return (pen = "M");
      path += `${pen}${px(x).toFixed(1)} ${py(s.y[j]).toFixed(1)}`;
      pen = "L";
    });
    const dash = Math.floor(k / 10) % 4;
    picture.append(svg("path", { d: path, stroke: colour(s), "stroke-dasharray": ["none", "6 3", "2 3", "8 3 2 3"][dash] }));
  });
  const mark = svg("line", { class: "mark", y1: top - 4, y2: height - low }), reading = svg("text", { class: "reading", x: width - right, y: 14, "text-anchor": "end" });
  const dot = svg("circle", { r: 4, fill: "var(--accent)", visibility: "hidden" });
  picture.append(mark, dot, reading);
  const key = make("div", { className: "key" });
  if (spec.series.length > 1)
    spec.series.forEach((s) => key.append(make("span", {}, make("i", { style: `background: ${colour(s)}` }), s.name)));
  spec.mark = (step) => {
    const x = px(Math.min(Math.max(step, x0), x1));
    mark.setAttribute("x1", x);
    mark.setAttribute("x2", x);
    const j = closest(lead.x, step);
    if (lead.y[j] !== null) {
      dot.setAttribute("visibility", "visible");
      dot.setAttribute("cx", px(lead.x[j]));
      dot.setAttribute("cy", py(lead.y[j]));
    } else dot.setAttribute("visibility", "hidden");
    reading.textContent = `${format(lead.y[j])} at step ${lead.x[j]}`;
  };
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    seek(x0 + (((event.clientX - box.left) / box.width) * width - left) / (width - left - right) * (x1 - x0));
  });
  spec.figure.replaceChildren(picture, key);
}
