// What every part of the page needs: nodes, numbers, colours. Names are only ever set as text.

const FULL = 32767, NO_CLASS = 65535, GREY = "#8A8A8A";
const find = (id) => document.getElementById(id);

function make(tag, options = {}, ...children) {
  const { text, dataset, ...rest } = options;
  const node = Object.assign(document.createElement(tag), rest);
  if (text !== undefined) node.textContent = text;
  Object.assign(node.dataset, dataset);
  node.append(...children);
  return node;
}
function svg(tag, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
function unpack(text, Kind) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
  return new Kind(bytes.buffer);
}

// Four digits that count; very large and very small numbers with a power of ten.
function format(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-4)) return value.toExponential(2).replace(/\.?0*e\+?/, "e");
  return String(Number(value.toPrecision(4)));
}
function ticks(low, high, most) {
  const rough = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((k) => k * power >= rough) ?? 10), found = [];
  for (let k = Math.ceil(low / step); k * step <= high + 1e-9 * step; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}
// The same on a scale of logarithms: whole powers, or also 2 and 5 times these where they are few.
function powers(low, high, most) {
  const every = Math.max(1, Math.round((high - low) / most)), found = [];
  for (let power = Math.ceil(low); power <= high; power++) if (power % every === 0) found.push(10 ** power);
  if (found.length > 2 || every > 1) return found;
  const more = [];
  for (let power = Math.floor(low); power <= high; power++) more.push(...[1, 2, 5].map((k) => k * 10 ** power));
  return more.filter((value) => Math.log10(value) >= low && Math.log10(value) <= high);
}
const closest = (values, wanted) => values.reduce((best, value, k) => (Math.abs(value - wanted) < Math.abs(values[best] - wanted) ? k : best), 0);

const isDark = () => document.documentElement.dataset.theme === "dark";
const ground = () => (isDark() ? "dark" : "light");
const colourNow = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
