// Drawing: marks of classes as in the figures of the library, places of points, cells of sheets of images.

// Corners of each marker as [angle in turns from the top, radius]; a disc has none.
const ring = (count, turn, ...radii) => Array.from({ length: count }, (_, k) => [turn + k / count, radii[k % radii.length]]);
const plus = (turn) => ring(4, 0, 1).flatMap(([t]) => [[t - 0.06, 1.15], [t + 0.06, 1.15], [t + 0.125, 0.55]].map(([a, r]) => [a + turn, r]));
const SHAPES = {
  "^": ring(3, 0, 1.3), v: ring(3, 0.5, 1.3), s: ring(4, 0.125, 1.25), D: ring(4, 0, 1.25),
  P: plus(0), X: plus(0.125), "*": ring(10, 0, 1.45, 0.6),
};
function outline(pen, shape, x, y, r) {
  const corners = SHAPES[shape];
  pen.beginPath();
  if (!corners) return pen.arc(x, y, r, 0, 2 * Math.PI);
  for (const [turn, size] of corners) pen.lineTo(x + size * r * Math.sin(2 * Math.PI * turn), y - size * r * Math.cos(2 * Math.PI * turn));
  pen.closePath();
}
function line(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

// From packed numbers to places on a canvas.
function camera({ extent, dim }, state, width, height, margin) {
  const [a, b, c = 0] = extent;
  if (dim === 2) {
    const left = margin.left, low = margin.low, edge = margin.edge;
    const scale = Math.min((width - left - edge) / (2 * a * FULL), (height - low - edge) / (2 * b * FULL));
    return { scale, cx: (width + left - edge) / 2, cy: (height - low + edge) / 2 };
  }
  const scale = (0.5 * Math.min(width, height) - 4) / (Math.hypot(a, b, c) * FULL) * 1.12;
  const [cy, sy, cp, sp] = [Math.cos(state.yaw), Math.sin(state.yaw), Math.cos(state.pitch), Math.sin(state.pitch)];
  return { scale, cx: width / 2, cy: height / 2, turned: (x, y, z) => [cy * x - sy * y, cp * z + sp * (sy * x + cy * y), cp * (sy * x + cy * y) - sp * z] };
}
function places(dim, values, from, to, mix, count, view) {
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

// Many small images in one picture each, by name.
function sheetBook() {
  const named = {};
  function load(name, sprite) {
    const image = new Image();
    image.src = sprite.uri;
    named[name] = { ...sprite, image };
    return image.decode();
  }
  function drawCell(canvas, name, k) {
    const { image, columns, width, height } = named[name];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    canvas.getContext("2d").drawImage(image, (k % columns) * width, Math.floor(k / columns) * height, width, height, 0, 0, width, height);
    return canvas;
  }
  return { named, load, drawCell };
}
